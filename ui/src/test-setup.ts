// What jsdom lacks and the window uses.
import { vi } from "vitest";

Object.defineProperty(window, "matchMedia", { writable: true, value: (query: string) => ({ matches: false, media: query, addEventListener: vi.fn(), removeEventListener: vi.fn(), addListener: vi.fn(), removeListener: vi.fn(), dispatchEvent: vi.fn() }) });
globalThis.ResizeObserver ??= class {
  observe() {}
  unobserve() {}
  disconnect() {}
};
Object.defineProperty(HTMLElement.prototype, "clientHeight", { get: () => 600 });
HTMLCanvasElement.prototype.getContext = () => null;
Object.defineProperty(HTMLElement.prototype, "offsetParent", { get: () => document.body });
