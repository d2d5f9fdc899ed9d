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

function press(button) {
  for (const other of button.parentElement.children) other.setAttribute("aria-pressed", String(other === button));
}

// Heatmaps: one layer at a time.
for (const button of document.querySelectorAll("[data-show]")) {
  button.addEventListener("click", () => {
    press(button);
    button.closest("figure").querySelectorAll(".layer").forEach((layer, i) => { layer.hidden = String(i) !== button.dataset.show; });
  });
}

// Projections: method, coloring, one language or class alone, the text at the pointer.
for (const figure of document.querySelectorAll(".scatter")) {
  const texts = JSON.parse(figure.querySelector("script").textContent);
  const marks = [...figure.querySelectorAll("path[data-i]")];
  const show = (only) => {
    for (const mark of marks) mark.classList.toggle("off", Boolean(only) && mark.dataset[only[0]] !== only.slice(1));
    for (const button of figure.querySelectorAll("[data-only]")) {
      button.setAttribute("aria-pressed", String(button.dataset.only === only));
    }
  };
  for (const button of figure.querySelectorAll("[data-set]")) {
    button.addEventListener("click", () => {
      press(button);
      figure.dataset[button.dataset.set] = button.dataset.to;
      if (button.dataset.set === "by") show("");
    });
  }
  for (const button of figure.querySelectorAll("[data-only]")) {
    button.addEventListener("click", () => show(button.getAttribute("aria-pressed") === "true" ? "" : button.dataset.only));
  }
  const svg = figure.querySelector("svg[role]");
  let at = null;
  const leave = () => { tip.hidden = true; if (at) at.classList.remove("at"); at = null; };
  const move = (event) => {
    // The nearest mark within a finger's reach, as marks are smaller than fingers.
    let best = null, least = event.pointerType === "touch" ? 24 : 10;
    for (const mark of marks) {
      if (mark.classList.contains("off") || mark.getClientRects().length === 0) continue;
      const box = mark.getBoundingClientRect();
      const gap = Math.hypot(box.left + box.width / 2 - event.clientX, box.top + box.height / 2 - event.clientY);
      if (gap < least) { best = mark; least = gap; }
    }
    if (!best) return leave();
    if (at) at.classList.remove("at");
    at = best;
    at.classList.add("at");
    const [text, ...described] = texts[Number(best.dataset.i)];
    showTip(event, (box) => { add(box, "b", described.join(" · ")); add(box, "div", text); });
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
