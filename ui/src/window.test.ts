import { mount, unmount } from "svelte";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import App from "./App.svelte";
import VirtualList from "./components/VirtualList.svelte";
import { fromPipes, INERT_OSC, makeInert } from "./features/terminal/xterm";
import { fakeClient, HOSTILE, type Fake } from "./ipc/fake";
import { $, accessible, all, click, press, settle, test } from "./on-screen";
import { createRawSnippet } from "svelte";
import { Terminal } from "@xterm/xterm";

vi.mock("./features/terminal/xterm", async (original) => ({ ...(await original<typeof import("./features/terminal/xterm")>()), ...(await import("./on-screen")).PLAIN_TERMINAL }));

let app: object | null = null;
let client: Fake;

async function open(empty = false) {
  client = fakeClient(empty);
  app = mount(App, { target: document.body, props: { client } });
  await settle();
}
const called = (name: string) => client.calls.filter((c) => c[0] === name);

beforeEach(() => {
  document.body.innerHTML = "";
  localStorage.clear();
});
afterEach(async () => {
  if (app) await unmount(app);
  app = null;
});

describe("the empty window", () => {
  it("explains in three lines and offers a repository and the demo", async () => {
    await open(true);
    expect(all(".welcome li")).toHaveLength(3);
    await accessible();
    await click("demo");
    expect(called("demo")).toHaveLength(1);
    expect(test("tab-activity")?.getAttribute("aria-selected")).toBe("true");
    expect(test("title")?.textContent).toBe("Demo");
  });
  it("says in words why a folder is no repository, and adds one that is", async () => {
    await open(true);
    await click("welcome-add");
    await accessible();
    const path = $<HTMLInputElement>("#repo-path")!;
    const type = async (text: string) => {
      path.value = text;
      path.dispatchEvent(new Event("input", { bubbles: true }));
      await click("repo-add");
    };
    await type("here");
    expect(test("repo-wrong")?.textContent).toContain("whole path");
    await type("/tmp/nothing");
    expect(test("repo-wrong")?.textContent).toContain("is not a git repository");
    await type("/home/you/tideline");
    expect(test("repo-wrong")).toBeNull();
    expect(test("sandbox")?.getAttribute("data-repo")).toBe("tideline");
  });
});

describe("the rail", () => {
  it("names each task's state in a word, not in colour alone", async () => {
    await open();
    const subs = all(".task .sub").map((e) => e.textContent);
    expect(subs.map((s) => s?.split(" · ")[0])).toEqual(["Running", "Ready to review", "Applied", "Ready", "Failed", "Failed"]);
    await accessible();
  });
  it("starts the usual agent with one click, and asks on Shift-click", async () => {
    await open();
    await click("sandbox");
    expect(called("create")[0]?.[1]).toMatchObject({ repo: "aaaaaaaa", agent: "claude-code", policy: "standard" });
    test("sandbox")!.dispatchEvent(new MouseEvent("click", { bubbles: true, shiftKey: true }));
    await settle();
    expect($("#new-task-dialog")).not.toBeNull();
  });
  it("is one tab stop", async () => {
    await open();
    expect(all("button.task").filter((t) => t.tabIndex === 0)).toHaveLength(1);
  });
  it("follows what changed elsewhere", async () => {
    await open();
    client.put((o) => (o.tasks[0]!.state = "ended"));
    await settle();
    expect(test("state")?.dataset["state"]).toBe("ended");
  });
});

describe("New task", () => {
  it("traps focus, starts by Ctrl Enter and hands over what was typed", async () => {
    await open();
    await press("n", { ctrlKey: true });
    await accessible();
    expect(document.activeElement?.id).toBe("nt-prompt");
    const dialog = $("#new-task-dialog")!;
    const stops = all("#new-task-dialog button, #new-task-dialog input, #new-task-dialog select, #new-task-dialog textarea").filter((e) => e.tabIndex >= 0);
    stops.at(-1)!.focus();
    await press("Tab", {}, dialog);
    expect(document.activeElement).toBe(stops[0]);
    const prompt = $<HTMLTextAreaElement>("#nt-prompt")!;
    prompt.value = "Fix it\nand test it";
    prompt.dispatchEvent(new Event("input", { bubbles: true }));
    await click("nt-kit-command");
    await click("nt-start");
    expect(test("nt-wrong")?.textContent).toContain("Give the command");
    const command = $<HTMLInputElement>("#nt-command")!;
    command.value = "make test";
    command.dispatchEvent(new Event("input", { bubbles: true }));
    await press("Enter", { ctrlKey: true }, dialog);
    expect(called("create")[0]?.[1]).toMatchObject({ prompt: "Fix it\nand test it", command: "make test", agent: null, base: "main" });
    expect($("#new-task-dialog")).toBeNull();
  });
  it("asks before it throws a prompt away, and gives focus back", async () => {
    await open();
    test("new-task")!.focus();
    await click("new-task");
    const prompt = $<HTMLTextAreaElement>("#nt-prompt")!;
    prompt.value = "long thought";
    prompt.dispatchEvent(new Event("input", { bubbles: true }));
    await press("Escape", {}, $("#new-task-dialog")!);
    expect(test("nt-wrong")?.textContent).toContain("lose the text");
    await press("Escape", {}, $("#new-task-dialog")!);
    expect($("#new-task-dialog")).toBeNull();
    expect(document.activeElement).toBe(test("new-task"));
  });
  it("starts from the repository of the task on screen", async () => {
    await open();
    all("[data-test=task]").find((t) => t.textContent?.includes("billing"))!.click();
    await settle();
    await click("new-task");
    await click("nt-start");
    expect(called("create")[0]?.[1]).toMatchObject({ repo: "bbbbbbbb" });
  });
  it("shows a refusal as words with the dialog still open", async () => {
    await open();
    await click("new-task");
    client.failNext("create", "usage", "task k3f9w2ab of this repository is called `x` already");
    await click("nt-start");
    expect(test("nt-wrong")?.textContent).toContain("is called `x` already");
  });
});

describe("hostile text", () => {
  it("is drawn as text in every view", async () => {
    await open();
    for (const tab of ["terminal", "activity", "changes"]) {
      await click(`tab-${tab}`);
      expect(all("img, iframe, script, b > b, .task b, a[href]"), tab).toHaveLength(0);
    }
    expect(all(".task .name").some((n) => n.textContent?.includes("<b>bold</b>"))).toBe(true);
    expect(all("[data-test=file]").some((n) => n.textContent?.includes(HOSTILE.markup))).toBe(true);
    expect(test("diff")?.textContent).toContain("<script>alert(1)</script>");
  });
  it("has its hiding characters written out and its direction kept inside", async () => {
    await open();
    await click("tab-activity");
    const event = all("[data-test=event]").find((e) => e.textContent?.includes("dm.set"))!;
    expect(event.querySelector(".esc")?.textContent).toBe("U+202E");
    expect(event.querySelector(".wh .iso")).not.toBeNull();
    expect(document.body.textContent).not.toMatch(/[\u202a-\u202e\u2066-\u2069\u0000-\u0008\u001b]/);
  });
});

describe("Activity", () => {
  it("filters by text, kind and verdict, and opens the detail by key", async () => {
    await open();
    await press("2", { altKey: true });
    await accessible();
    const rows = () => all("[data-test=event]").length;
    const before = rows();
    await click("verdict-denied");
    expect(rows()).toBe(2);
    await click("verdict-all");
    await click("kind-file");
    expect(all("[data-kind=file]")).toHaveLength(0);
    await click("kind-file");
    expect(rows()).toBe(before);
    await press("d");
    await press("Enter");
    expect(test("event-detail")?.textContent).toContain("id_ed25519");
    expect(test("event-detail")?.textContent).toContain("files.hide[0]");
    expect(test("says")?.textContent).toContain("tools/fixtures.py");
    await accessible();
    await press("Escape");
    expect(test("event-detail")).toBeNull();
  });
  it("shows the first event of a task that had none", async () => {
    await open();
    const empty = { caughtUp: true, events: [] };
    client.events = (_task, _from, batch) => {
      batch(empty);
      const late = setTimeout(() => batch({ caughtUp: true, events: [{ seq: 1, time: 1, run: "r", count: 1, process: null, what: { kind: "lifecycle", phase: "started", detail: "sh" } }] }), 5);
      return () => clearTimeout(late);
    };
    await click("tab-activity");
    expect(test("events-empty")).not.toBeNull();
    await vi.waitFor(() => expect(all("[data-test=event]")).toHaveLength(1));
    expect(test("events-empty")).toBeNull();
    expect(test("feed-state")?.textContent).toContain("1 event ·");
  });
  it("stops following when an older event is chosen, counts what came since, and catches up", async () => {
    await open();
    await click("tab-activity");
    await press("k");
    await press("k");
    expect(test("follow")?.getAttribute("aria-pressed")).toBe("false");
    client.pushEvents({ caughtUp: true, events: [{ seq: 99, time: Date.now(), run: "r", count: 1, process: null, what: { kind: "lifecycle", phase: "frozen", detail: "" } }] });
    await settle();
    expect(test("newer")?.textContent).toContain("1 newer event");
    await press("End");
    expect(test("newer")).toBeNull();
    expect(test("follow")?.getAttribute("aria-pressed")).toBe("true");
  });
});

describe("Changes", () => {
  it("decides by key, says why nothing can be applied yet, applies what was shown, and undoes", async () => {
    await open();
    await press("3", { altKey: true });
    await accessible();
    expect(test("why")?.textContent).toContain("9 files aren’t decided");
    expect(test("apply")?.hasAttribute("disabled")).toBe(true);
    await press("n");
    expect(called("decide")[0]?.slice(3)).toEqual([[], [".github/workflows/ci.yml"]]);
    await press("y");
    expect(test("progress")?.textContent).toContain("2 of 9 files decided");
    await click("accept-open");
    expect(test("why")?.textContent).toContain("8 files can leave, 1 stays behind");
    await click("apply");
    await accessible();
    const message = $<HTMLTextAreaElement>("#apply-message")!;
    expect(message.value).toContain("Recover from a torn WAL tail");
    message.value = "Keep torn bytes";
    message.dispatchEvent(new Event("input", { bubbles: true }));
    await press("Enter", { ctrlKey: true }, $("#apply-dialog")!);
    const [, , tree, result, onto, words] = called("apply")[0]!;
    expect([onto, words]).toEqual(["main", "Keep torn bytes"]);
    expect(result).not.toBe(tree);
    expect(test("applied")?.textContent).toContain("Applied onto main");
    await click("undo");
    expect(called("undo")).toHaveLength(1);
    expect(test("apply")).not.toBeNull();
  });
  it("asks for a new look when the workspace changed", async () => {
    await open();
    await click("tab-changes");
    client.failNext("decide", "stale", "the task's candidate is another one now");
    await press("y");
    expect(test("stale")?.textContent).toContain("Changed since you looked");
    expect(test("apply")?.hasAttribute("disabled")).toBe(true);
    await click("look");
    expect(test("stale")).toBeNull();
  });
  it("pairs the split view, and shows only marked files on X", async () => {
    await open();
    await click("tab-changes");
    await press("v");
    expect(test("diff")?.dataset["layout"]).toBe("split");
    expect(all(".sp .l.del").length).toBeGreaterThan(0);
    await press("x");
    expect(all("[data-test=file]")).toHaveLength(5);
  });
  it("names what was left out, and says so when nothing changed", async () => {
    await open();
    await click("tab-changes");
    expect(test("left-out")?.textContent).toContain("tmp/pipe");
    all("[data-test=task]").find((t) => t.dataset["state"] === "ready")!.click();
    await settle();
    expect(test("no-changes")?.textContent).toContain("Same as main 4f1c9e2");
  });
});

describe("Terminal", () => {
  it("says that there is no run and starts one", async () => {
    await open();
    all("[data-test=task]").find((t) => t.dataset["state"] === "ready")!.click();
    await settle();
    expect(test("no-run")?.textContent).toContain("No run.");
    await accessible();
    await click("start-shell");
    expect(called("launch")[0]?.[2]).toBe("shell");
    expect(test("terminal")).not.toBeNull();
  });
  it("tells how many bytes were drawn, so that a flood waits outside", async () => {
    await open();
    // Also what was drawn before the connection was known here.
    expect(called("terminal.drawn").reduce((n, c) => n + Number(c[1]), 0)).toBeGreaterThan(100);
  });
  it("is attached once, however often the task is read again", async () => {
    await open();
    client.put((o) => (o.tasks[0]!.state = "ended"));
    for (let i = 0; i < 5; i++) {
      client.put(() => undefined);
      await settle();
    }
    expect(called("terminal")).toHaveLength(1);
  });
  it("knows output of pipes by its first line end", () => {
    const of = (text: string) => fromPipes(new TextEncoder().encode(text));
    expect([of("one\ntwo"), of("one\r\ntwo"), of("\x1b[2J\n"), of("no end")]).toEqual([true, false, false, null]);
    expect([of("\x1b[1;32mgreen\x1b[0m\nnext"), of("\x1b[1mbold\x1b[0m\r\n"), of("\x1b[?1049h\n"), of("\x1b]0;t\n"), of("\x1b[3")], "colours say nothing of it").toEqual([true, false, false, false, null]);
  });
  it("lets no sequence act: title, clipboard, links, colours, window", async () => {
    const t = new Terminal();
    const titles: string[] = [];
    const answers: string[] = [];
    t.onTitleChange((x) => titles.push(x));
    t.onData((x) => answers.push(x));
    makeInert(t);
    const hostile = "\x1b]0;owned\x07\x1b]2;owned\x1b\\\x1b]52;c;aGk=\x07\x1b]52;c;?\x07\x1b]8;;https://evil.example\x07link\x1b]8;;\x07\x1b]10;?\x07\x1b]4;1;?\x07\x1b[21t\x1b[18t\x1bP$qm\x1b\\";
    await new Promise<void>((done) => t.write(hostile, done));
    expect(titles).toEqual([]);
    expect(answers).toEqual([]);
    expect(t.buffer.active.getLine(0)?.translateToString(true)).toBe("link");
    expect(INERT_OSC).toEqual(expect.arrayContaining([0, 1, 2, 8, 52]));
    t.dispose();
  });
});

describe("the task's head", () => {
  it("counts a weaker promise out loud and shows each with how it is kept and why not", async () => {
    await open();
    expect(test("promises")?.textContent).toContain("3/5");
    await click("promises");
    const rows = all("[data-test=promise]");
    expect(rows.map((p) => [p.dataset["promise"], p.dataset["level"]])).toEqual([["1", "full"], ["2", "full"], ["4", "absent"], ["6", "full"], ["8", "partial"]]);
    expect(rows[0]?.textContent).toContain("by own mount namespace + Landlock ABI 7");
    expect(rows[4]?.textContent).toContain("memory: no cgroup was delegated");
    expect(rows[4]?.textContent).not.toContain("processes:");
    await accessible();
    await press("Escape");
    expect(test("promises-view")).toBeNull();
  });
  it("shows an accepted loss in every view, and it can't be dismissed", async () => {
    await open();
    for (const tab of ["tab-terminal", "tab-activity", "tab-changes", "promises"]) {
      await click(tab);
      expect(test("accepted")?.textContent).toContain("promise 4 accepted as weaker");
    }
    expect(all("[data-test=promise][data-accepted]").map((p) => p.dataset["promise"])).toEqual(["4"]);
  });
  it("names what would mend this machine, as text", async () => {
    await open();
    await click("machine");
    expect(test("cure")?.textContent).toContain("sudo modprobe nft_tproxy");
    expect(test("cure")?.textContent).toContain('accept = ["network"]');
    await accessible();
  });
  it("stops, then discards after a question whose first answer is to keep", async () => {
    await open();
    await click("stop");
    expect(called("stop")).toHaveLength(1);
    await click("discard");
    expect(document.activeElement?.textContent).toBe("Keep it");
    await accessible();
    await click("discard-yes");
    expect(called("discard")).toHaveLength(1);
    expect(test("title")?.textContent).not.toBe("Recover from a torn WAL tail");
  });
  it("pauses and goes on, by button and by key, and says who paused", async () => {
    await open();
    await click("pause");
    expect(called("pause")).toHaveLength(1);
    expect(test("state")?.textContent).toContain("Paused");
    expect(document.querySelector("[data-test='task'][aria-current='page']")?.textContent).toContain("Paused");
    expect(test("paused-by-limit")).toBeNull();
    await accessible();
    await press("p", { altKey: true });
    expect(called("proceed")).toHaveLength(1);
    expect(test("state")?.textContent).toContain("Running");
    client.put((s) => (s.tasks.find((t) => t.id === "tttttttt")!.paused = "limit"));
    await settle();
    expect(test("paused-by-limit")?.textContent).toContain("as much again");
    await accessible();
    await click("proceed");
    expect(test("paused-by-limit")).toBeNull();
  });
  it("says which caches a run sees, and why one is not shown", async () => {
    await open();
    await click("promises");
    const rows = [...document.querySelectorAll("[data-test='cache']")].map((r) => r.textContent);
    expect(rows).toHaveLength(2);
    expect(rows[1]).toContain("npm: not shown");
    expect(rows[1]).toContain("still being made");
    await accessible();
  });
  it("shows a failure in words with its code", async () => {
    await open();
    client.failNext("stop", "machine", "the run's warden does not answer");
    await click("stop");
    expect(test("failure")?.textContent).toContain("does not answer");
    expect(test("failure")?.textContent).toContain("machine");
  });
});

describe("keys and themes", () => {
  it("lists every key on ?", async () => {
    await open();
    await press("?", { shiftKey: true });
    expect($("#sheet")?.textContent).toContain("accept file");
    await accessible();
    await press("Escape", {}, $("#sheet")!);
    expect($("#sheet")).toBeNull();
  });
  it("moves between tasks", async () => {
    await open();
    await press("ArrowDown", { altKey: true });
    expect(test("title")?.textContent).toBe("Drop the v1 segment reader");
    await press("ArrowUp", { altKey: true });
    expect(test("title")?.textContent).toBe("Recover from a torn WAL tail");
  });
  it("keeps the theme that was chosen", async () => {
    await open();
    await click("theme-light");
    expect(document.documentElement.dataset["theme"]).toBe("light");
    expect(localStorage.getItem("airlock.theme")).toBe("light");
  });
});

describe("the virtual list", () => {
  it("draws what is in sight and little more, of a hundred thousand", async () => {
    const row = createRawSnippet((n: () => number) => ({ render: () => `<div class="one">${n()}</div>` }));
    app = mount(VirtualList<number>, { target: document.body, props: { items: Array.from({ length: 100_000 }, (_, i) => i), rowHeight: 20, label: "many", row } });
    await settle();
    const drawn = all(".one").map((e) => Number(e.textContent));
    expect(drawn.length).toBeGreaterThan(0);
    expect(drawn.length).toBeLessThan(80);
    const list = $(".vlist")!;
    list.scrollTop = 40_000;
    list.dispatchEvent(new Event("scroll"));
    await settle();
    expect(all(".one").map((e) => Number(e.textContent))).toContain(2000);
    expect(all(".one").length).toBeLessThan(80);
  });
});
