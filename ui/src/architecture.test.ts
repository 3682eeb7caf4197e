import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

const files = (readdirSync("src", { recursive: true }) as string[]).filter((f) => /\.(ts|svelte)$/.test(f) && !f.endsWith(".test.ts"));
const source = new Map(files.map((f) => [f, readFileSync(`src/${f}`, "utf8")]));
const imports = (text: string) => Array.from(text.matchAll(/(?:from|import)\s*\(?\s*"([^"]+)"/g), (m) => m[1]!);

describe("the shape of ui/src", () => {
  it("has one seam to the Rust side", () => {
    for (const [file, text] of source) if (file !== "ipc/client.ts") for (const i of imports(text)) expect(`${file}: ${i}`).not.toMatch(/@tauri-apps|bindings/);
  });
  it("keeps features apart, and components and lib below them", () => {
    for (const [file, text] of source) {
      const feature = /^features\/(\w+)\//.exec(file)?.[1];
      for (const i of imports(text)) {
        if (feature && i.startsWith("../")) expect(`${file}: ${i}`).toMatch(/: \.\.\/\.\.\/(components|lib|ipc)\//);
        if (file.startsWith("components/")) expect(`${file}: ${i}`).not.toMatch(/features|ipc/);
        if (file.startsWith("lib/")) expect(`${file}: ${i}`).not.toMatch(/features|components/);
      }
    }
  });
  it("draws nothing as markup and sets no style by attribute", () => {
    for (const [file, text] of source) {
      expect(`${file}: ${/\{@html|innerHTML|insertAdjacentHTML|document\.write/.exec(text)?.[0] ?? ""}`).toBe(`${file}: `);
      expect(`${file}: ${/\sstyle=["{]/.exec(text)?.[0] ?? ""}`).toBe(`${file}: `);
    }
  });
  it("has a literal colour in the tokens only", () => {
    const sheets = readdirSync("src/styles").filter((f) => f.endsWith(".css") && f !== "tokens.css");
    expect(sheets).toContain("base.css");
    for (const f of sheets) expect(`${f}: ${/#[0-9a-f]{3,8}\b|rgba?\(/i.exec(readFileSync(`src/styles/${f}`, "utf8"))?.[0] ?? ""}`).toBe(`${f}: `);
  });
  it("keeps files small", () => {
    for (const [file, text] of source) expect(`${file}: ${text.split("\n").length > 500}`).toBe(`${file}: false`);
  });
});
