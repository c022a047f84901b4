// Sets the theme before anything is painted. It follows the system until the person chooses one.
try {
  const chosen = localStorage.getItem("waypost-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // The browser blocks storage.
}
