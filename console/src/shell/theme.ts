const key = "waypost-theme";

/** Changes from light to dark or back, and remembers it in this browser. */
export function toggleTheme(): void {
  const root = document.documentElement;
  const isDark =
    (root.dataset["theme"] ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) ===
    "dark";
  setTheme(isDark ? "light" : "dark");
}

/** Sets the theme. "system" follows the system again. */
function setTheme(theme: "light" | "dark" | "system"): void {
  const root = document.documentElement;
  if (theme === "system") {
    delete root.dataset["theme"];
    localStorage.removeItem(key);
  } else {
    root.dataset["theme"] = theme;
    localStorage.setItem(key, theme);
  }
}
