"use strict";
document.documentElement.classList.remove("noscript");
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
