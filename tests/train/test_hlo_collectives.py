import pytest

from benchmarks.hlo_collectives import read_collectives, summary

# Written by hand after what the CPU's and a TPU's compiler print.
LOOP = """\
HloModule jit_step, is_scheduled=true, entry_computation_layout={(f32[8,4]{1,0})->f32[8,4]{1,0}}

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

%body (carry: (s32[], f32[8,4])) -> (s32[], f32[8,4]) {
  %carry = (s32[], f32[8,4]{1,0}) parameter(0)
  %element = f32[8,4]{1,0} get-tuple-element(%carry), index=1
  %all-reduce.1 = f32[8,4]{1,0} all-reduce(%element), replica_groups={{0,1},{2,3}}, to_apply=%add
  ROOT %tuple = (s32[], f32[8,4]{1,0}) tuple(%element, %all-reduce.1)
}

%condition (carry.1: (s32[], f32[8,4])) -> pred[] {
  %carry.1 = (s32[], f32[8,4]{1,0}) parameter(0)
  ROOT %less = pred[] constant(true)
}

ENTRY %main (p: f32[8,4]) -> f32[8,4] {
  %p = f32[8,4]{1,0} parameter(0), metadata={op_name="all-gather(not one)"}
  %w = (s32[], f32[8,4]) while(%p), condition=%condition, body=%body, {"known_trip_count":{"n":"5"}}
  %two = (f32[2], /*index=1*/bf16[3,5]{1,0:T(8,128)S(1)}) all-reduce(%p), replica_groups=[1,4]<=[4]
  ROOT %out = f32[8,4]{1,0} get-tuple-element(%w), index=1
}
"""

TPU = """\
%fused (a: bf16[2,4]) -> bf16[8,4] {
  %ag = bf16[8,4]{1,0:S(1)} all-gather(%a), replica_groups=mesh['x'=4,'y'=2] {'x'}, {chain_id="34"}
}

%all-reduce-scatter.1 (input: f32[16,2]) -> f32[4,2] {
  %all-reduce.2 = f32[16,2]{1,0} all-reduce(%input), replica_groups={{0,1,2,3,4,5,6,7}}
  ROOT %dynamic-slice = f32[4,2]{1,0} dynamic-slice(%all-reduce.2, %number)
}

ENTRY %main (p: f32[8,4]) -> f32[8,4] {
  %one = bf16[8,4] fusion(%p), kind=kOutput, calls=%fused
  %two = bf16[8,4] fusion(%p), kind=kOutput, calls=%fused
  %part = f32[4,2] fusion(%p), kind=kCustom, calls=%all-reduce-scatter.1
  %start = (f32[4]{0}, f32[16]{0}) all-gather-start(%p), replica_groups=[2,4]<=[8], dimensions={0}
  %done = f32[16]{0} all-gather-done(%start)
  %send = (s8[6], s8[6], u32[], u32[]) collective-permute-start(%p), source_target_pairs={{0,1}}
  %sent = s8[6]{0} collective-permute-done(%send)
  ROOT %rs = f32[2,3]{1,0} reduce-scatter(%p), replica_groups={}, dimensions={0}, to_apply=%add
}
"""


def test_loops_count_as_often_as_they_turn():
    in_loop, both = read_collectives(LOOP, 4)
    assert in_loop == ("all-reduce", ("f32[8,4]",), 128, 2, 5, True)
    assert both == ("all-reduce", ("f32[2]", "bf16[3,5]"), 8 + 30, 4, 1, False)


def test_bytes_a_device_sends_around_a_ring():
    in_loop, both = read_collectives(LOOP, 4)
    assert in_loop.wire_bytes == 5 * 2 * (1 / 2) * 128
    assert both.wire_bytes == 2 * (3 / 4) * 38
    assert summary([in_loop, both]) == [("all-reduce", 6, 5 * 128 + 38, 640 + 57)]


def test_the_forms_of_a_tpu():
    gathered, scattered, started, permuted, reduced = read_collectives(TPU, 8)
    # Two fusions name the same exchange.
    assert gathered == ("all-gather", ("bf16[8,4]",), 64, 4, 1, False)
    assert scattered == ("reduce-scatter", ("f32[16,2]",), 128, 8, 1, False)
    assert started == ("all-gather", ("f32[16]",), 64, 4, 1, False)
    assert permuted == ("collective-permute", ("s8[6]",), 6, 8, 1, False)
    assert permuted.wire_bytes == pytest.approx(6)
    # The text has one device's part of it.
    assert reduced == ("reduce-scatter", ("f32[2,3]",), 8 * 24, 8, 1, False)
    assert reduced.wire_bytes == 7 / 8 * 8 * 24
