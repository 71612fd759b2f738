// What scrolls sideways can be reached by the keyboard.
function letScroll() {
  for (const part of document.querySelectorAll("pre, .table-wrapper")) {
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
    else part.removeAttribute("tabindex");
  }
}
addEventListener("load", letScroll);
addEventListener("resize", letScroll);
