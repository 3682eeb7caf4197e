/** An element that stands in for `<style>`: its text becomes an adopted style sheet while it is in the document. */
class StyleSink extends HTMLElement {
  #sheet = new CSSStyleSheet();
  #text = "";

  override get textContent(): string {
    return this.#text;
  }

  override set textContent(text: string | null) {
    this.#text = text ?? "";
    this.#sheet.replaceSync(this.#text);
  }

  connectedCallback(): void {
    document.adoptedStyleSheets = [...document.adoptedStyleSheets, this.#sheet];
  }

  disconnectedCallback(): void {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((s) => s !== this.#sheet);
  }
}

/** Makes `<airlock-style>` known; a second call does nothing. */
export function defineStyleSink(): void {
  if (!customElements.get("airlock-style")) customElements.define("airlock-style", StyleSink);
}
