// Sets the theme before anything is painted. It follows the system until the person chooses one.
const chosen = localStorage.getItem("waypost-theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
