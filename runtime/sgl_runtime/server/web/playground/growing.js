// A text field that is as high as its text, up to a limit that the style sheet sets.

/** @param {HTMLTextAreaElement} field */
export function growing(field) {
  field.classList.add("growing");
  if (!CSS.supports("field-sizing", "content")) {
    field.addEventListener("input", () => {
      field.style.height = "auto";
      field.style.height = `${field.scrollHeight + 2}px`;
    });
  }
  return field;
}
