// xterm.js as this window uses it: nothing that a jail prints acts outside the terminal's own cells.
import { Terminal, type ITheme } from "@xterm/xterm";

/** OSC sequences that would act: title (0, 1, 2), colour queries and changes (4, 10 to 19, 104, 110 to 119), links (8), clipboard (52), notifications (9, 777) and files (1337). */
export const INERT_OSC: readonly number[] = [0, 1, 2, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 52, 104, 105, 110, 111, 112, 113, 114, 115, 116, 117, 118, 119, 633, 777, 1337];

/** Swallows sequences that would act or answer with text of the jail's choosing; cursor position and device attributes still answer, since full-screen programs wait for them. */
export function makeInert(terminal: Pick<Terminal, "parser">): void {
  for (const code of INERT_OSC) terminal.parser.registerOscHandler(code, () => true);
  // DECRQSS echoes a setting; window reports and resizes (CSI t) tell or move the window.
  terminal.parser.registerDcsHandler({ intermediates: "$", final: "q" }, () => true);
  terminal.parser.registerCsiHandler({ final: "t" }, () => true);
}

/**
 * Whether bytes come from pipes, where a line ends without the carriage return that a terminal adds; `null` while that can't be
 * told. A terminal's first line end has one, unless a full-screen program took over before, which it does by an escape sequence.
 */
export function fromPipes(bytes: Uint8Array): boolean | null {
  for (let i = 0; i < bytes.length; i++) {
    if (bytes[i] === 0x1b) {
      // Colours are no word of a terminal's: programs write them into pipes too.
      let end = i + 2;
      while (end < bytes.length && bytes[end]! >= 0x30 && bytes[end]! <= 0x3f) end += 1;
      if (end >= bytes.length) return null;
      if (bytes[i + 1] !== 0x5b || bytes[end] !== 0x6d) return false;
      i = end;
    }
    if (bytes[i] === 0x0a) return i > 0 && bytes[i - 1] !== 0x0d;
  }
  return null;
}

function token(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** The terminal's colours from the tokens. */
export function themeOf(): ITheme {
  return {
    background: token("--sunk"),
    foreground: token("--text"),
    cursor: token("--text"),
    cursorAccent: token("--sunk"),
    selectionBackground: token("--select"),
    selectionInactiveBackground: token("--press"),
    black: token("--sunk"),
    red: token("--bad"),
    green: token("--ok"),
    yellow: token("--warn"),
    blue: token("--accent"),
    magenta: token("--sx-kw"),
    cyan: token("--sx-ty"),
    white: token("--text-2"),
    brightBlack: token("--text-3"),
    brightRed: token("--bad"),
    brightGreen: token("--ok"),
    brightYellow: token("--warn"),
    brightBlue: token("--sx-fn"),
    brightMagenta: token("--sx-mac"),
    brightCyan: token("--sx-ty"),
    brightWhite: token("--text"),
    scrollbarSliderBackground: token("--press"),
    scrollbarSliderHoverBackground: token("--line-2"),
    scrollbarSliderActiveBackground: token("--line-ctl"),
  };
}

/** A terminal with the tokens' face and colours and without anything that acts. */
export function makeTerminal(): Terminal {
  const terminal = new Terminal({
    fontFamily: token("--font-mono"),
    fontSize: 12,
    lineHeight: 1.1,
    scrollback: 10_000,
    cursorBlink: false,
    minimumContrastRatio: 4.5,
    windowOptions: {},
    allowProposedApi: false,
    theme: themeOf(),
  });
  makeInert(terminal);
  return terminal;
}
