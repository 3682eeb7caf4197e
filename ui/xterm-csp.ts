import type { Plugin } from "vite";

/**
 * The window's content security policy has no `unsafe-inline` for styles, and xterm.js writes `<style>` elements and `style`
 * attributes. Three element creations become `<airlock-style>` (see `src/lib/style-sink.ts`, which feeds an adopted style
 * sheet) and one `setAttribute("style", …)` becomes an assignment through the CSSOM, both of which the policy permits.
 * Another version of xterm.js with other code fails the build here instead of losing its colours in silence.
 */
export function xtermUnderCsp(): Plugin {
  return {
    name: "xterm-under-csp",
    enforce: "pre",
    transform(code, id) {
      if (!/@xterm\/xterm\/lib\/xterm\.m?js(\?|$)/.test(id)) return null;
      const element = code.split('.createElement("style")');
      const attribute = code.split('t.setAttribute("style",`${t.getAttribute("style")||""}${e};`)');
      if (element.length !== 4 || attribute.length !== 2)
        throw new Error(
          `xterm.js is not the version that xterm-csp.ts knows: ${element.length - 1} style elements (3 expected), ` +
            `${attribute.length - 1} style attributes (1 expected)`,
        );
      const out = element
        .join('.createElement("airlock-style")')
        .replace('t.setAttribute("style",`${t.getAttribute("style")||""}${e};`)', "t.style.cssText+=`${e};`");
      return { code: out, map: null };
    },
  };
}
