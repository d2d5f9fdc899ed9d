"use strict";
document.documentElement.classList.remove("noscript");
const tip = document.getElementById("tip");

function showTip(event, fill) {
  tip.textContent = "";
  fill(tip);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, innerWidth - box.width - 12);
  const below = event.clientY + 18;
  const top = below + box.height > innerHeight - 8 ? event.clientY - box.height - 14 : below;
  tip.style.left = Math.max(12, left) + "px";
  tip.style.top = Math.max(8, top) + "px";
}

function add(parent, tag, text, name) {
  const child = parent.appendChild(document.createElement(tag));
  if (text !== undefined) child.textContent = text;
  if (name) child.className = name;
  return child;
}

function number(value) {
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return String(value);
  return size >= 1e4 || size < 1e-3 ? value.toExponential(3) : String(Number(value.toPrecision(4)));
}

// Curves: the values of all lines at the step nearest to the pointer.
for (const svg of document.querySelectorAll("[data-chart]")) {
  const chart = JSON.parse(svg.dataset.chart);
  const cursor = svg.querySelector(".cursor");
  const [low, high, left, right] = chart.x;
  const leave = () => { tip.hidden = true; cursor.style.visibility = "hidden"; };
  const move = (event) => {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    const wanted = low + (x - left) / (right - left) * (high - low);
    const near = chart.lines.map(([color, name, steps, values]) => {
      let best = 0;
      steps.forEach((step, i) => { if (Math.abs(step - wanted) < Math.abs(steps[best] - wanted)) best = i; });
      return { color, name, step: steps[best], value: values[best] };
    });
    const step = near.reduce((a, b) => Math.abs(a.step - wanted) <= Math.abs(b.step - wanted) ? a : b).step;
    const at = left + (step - low) / (high - low) * (right - left);
    cursor.setAttribute("transform", `translate(${at} 0)`);
    cursor.style.visibility = "visible";
    showTip(event, (box) => {
      add(box, "b", "step " + number(step));
      for (const line of near) {
        const row = add(box, "div");
        add(row, "span", "", "swatch b" + line.color);
        row.append(`${line.name}: ${number(line.value)}` + (line.step === step ? "" : ` (step ${number(line.step)})`));
      }
    });
  };
  svg.addEventListener("pointermove", move);
  svg.addEventListener("pointerdown", move);
  svg.addEventListener("pointerleave", leave);
}

// Wide and long tables: which edges have more beyond them.
function mark(box) {
  box.classList.toggle("left", box.scrollLeft > 1);
  box.classList.toggle("right", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
  box.classList.toggle("below", box.scrollTop + box.clientHeight < box.scrollHeight - 1);
}
const resized = new ResizeObserver((entries) => entries.forEach((entry) => mark(entry.target)));
for (const box of document.querySelectorAll(".scroll")) {
  box.addEventListener("scroll", () => mark(box), { passive: true });
  resized.observe(box);
}

// Retrieval errors: the first few, all, or those of one direction.
for (const select of document.querySelectorAll(".picker select")) {
  select.addEventListener("change", () => {
    const section = select.closest("section");
    section.querySelector(".errors").classList.toggle("open", select.value !== "");
    for (const item of section.querySelectorAll(".error")) {
      item.hidden = select.value !== "" && item.dataset.direction !== select.value;
    }
    const all = section.querySelector(".all");
    if (all) all.hidden = select.value !== "";
  });
}
for (const button of document.querySelectorAll(".all")) {
  button.addEventListener("click", () => {
    button.closest("section").querySelector(".errors").classList.add("open");
    button.hidden = true;
  });
}
addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
