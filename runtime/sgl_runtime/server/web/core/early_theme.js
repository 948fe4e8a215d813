// Runs before anything is drawn, so that a chosen theme does not flash up as the other one.
try {
  const theme = localStorage.getItem("sgl.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // A browser that keeps nothing has no theme to show.
}
