/** Changes from light to dark or back, and remembers it in this browser. */
export function toggleTheme(): void {
  const root = document.documentElement;
  const isDark =
    (root.dataset["theme"] ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) ===
    "dark";
  const theme = isDark ? "light" : "dark";
  root.dataset["theme"] = theme;
  try {
    localStorage.setItem("waypost-theme", theme);
  } catch {
    // The browser blocks storage. The theme stays until the page is closed.
  }
}
