// The fonts of the system: the default theme brings 18 files with its own.
export { default } from "vitepress/theme-without-fonts";
