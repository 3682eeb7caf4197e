// Dark or light, as the desktop has it or as the person chose.

/** What the person chose. */
export type Theme = "system" | "light" | "dark";

const KEY = "airlock.theme";

/** The stored choice. */
export function storedTheme(): Theme {
  const v = localStorage.getItem(KEY);
  return v === "light" || v === "dark" ? v : "system";
}

/** Stores a choice. */
export function storeTheme(theme: Theme): void {
  localStorage.setItem(KEY, theme);
}

const wantsLight = () => window.matchMedia?.("(prefers-color-scheme: light)") ?? null;

/** Puts a theme on the page and follows the desktop while it is `system`; the result ends the following. */
export function useTheme(theme: Theme, changed: () => void): () => void {
  const query = wantsLight();
  const put = () => {
    document.documentElement.dataset["theme"] = theme === "system" ? (query?.matches ? "light" : "dark") : theme;
    changed();
  };
  put();
  if (theme !== "system" || !query) return () => undefined;
  query.addEventListener("change", put);
  return () => query.removeEventListener("change", put);
}
