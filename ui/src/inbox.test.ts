import { mount, unmount } from "svelte";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import App from "./App.svelte";
import { fakeClient, HOSTILE, type Fake } from "./ipc/fake";
import { ARMED_AFTER } from "./lib/asks";
import { $, accessible, all, click, press, settle, test } from "./on-screen";

vi.mock("./features/terminal/xterm", async (original) => ({ ...(await original<typeof import("./features/terminal/xterm")>()), ...(await import("./on-screen")).PLAIN_TERMINAL }));

let app: object | null = null;
let client: Fake;

async function open() {
  client = fakeClient();
  app = mount(App, { target: document.body, props: { client } });
  await settle();
}
/** The time passes in which an ask on screen becomes one that can be answered. */
async function wait(ms = ARMED_AFTER + 20) {
  await vi.advanceTimersByTimeAsync(ms);
  await settle();
}
const answers = () => client.calls.filter((c) => c[0] === "answer");
const armed = () => test("answer")?.dataset["armed"] === "true";
const host = (h: string) => ({ what: { about: "connect" as const, host: h, port: 443 } });

beforeEach(() => {
  document.body.innerHTML = "";
  localStorage.clear();
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval", "requestAnimationFrame", "cancelAnimationFrame", "Date"], now: new Date(2031, 4, 6, 14, 0, 0) });
});
afterEach(async () => {
  if (app) await unmount(app);
  app = null;
  vi.useRealTimers();
});

describe("what waits", () => {
  it("is counted in the rail and on its task, and told on the task's views", async () => {
    await open();
    expect(test("badge")).toBeNull();
    expect(test("held")).toBeNull();
    client.ask();
    client.ask(host("api.example.org"));
    client.ask({ task: "uuuuuuuu" });
    await settle();
    expect(test("inbox")?.querySelector(".badge")?.textContent).toContain("3");
    const badges = all("[data-test=task]").map((t) => t.querySelector(".badge"));
    expect(badges.map((b) => b?.textContent?.trim().charAt(0) ?? "")).toEqual(["2", "1", "", "", "", ""]);
    expect(badges[0]?.querySelector("svg"), "a sign beside the number").not.toBeNull();
    expect(test("held")?.textContent).toContain("curl wants vectors.example.org:443");
    expect(test("held")?.textContent).toContain("and 1 more");
    await accessible();
    await click("held-open");
    expect(test("ask-what")?.textContent).toBe("vectors.example.org:443");
  });
  it("is announced once, and takes no focus", async () => {
    await open();
    test("new-task")!.focus();
    client.ask();
    await settle();
    const region = test("announce")!;
    expect(region.getAttribute("aria-live")).toBe("assertive");
    expect(region.textContent).toContain("curl wants vectors.example.org:443");
    expect(document.activeElement).toBe(test("new-task"));
    const said = region.firstElementChild;
    client.putAsks((d) => (d.asks[0]!.tries = 4));
    await settle();
    expect(region.firstElementChild, "more tries are nothing new").toBe(said);
    client.ask(host("api.example.org"));
    await settle();
    expect(region.textContent).toContain("api.example.org:443");
    expect(region.textContent).not.toContain("vectors");
  });
  it("is opened by A, not while typing", async () => {
    await open();
    client.ask();
    client.ask(host("later.example.org"));
    await click("tab-activity");
    const field = test("events-filter")!;
    field.focus();
    await press("a", {}, field);
    expect(test("inbox-view")).toBeNull();
    await press("a");
    expect(test("ask-what")?.textContent).toBe("vectors.example.org:443");
    expect(document.activeElement).toBe(test("deny"));
    expect(all("[data-test=task][aria-current=page]")).toHaveLength(0);
    await press("Escape");
    expect(test("inbox-view")).toBeNull();
  });
  it("shows three of a task, and the rest in one line that opens them", async () => {
    await open();
    for (let i = 0; i < 5; i++) client.ask(host(`n${i}.example.org`));
    client.ask({ task: "uuuuuuuu" });
    await click("inbox");
    expect(all("[data-test=ask]")).toHaveLength(4);
    expect(test("ask-more")?.textContent).toContain("2 more of Recover");
    await accessible();
    await click("ask-more");
    expect(all("[data-test=ask]")).toHaveLength(6);
    expect(all("[data-test=ask]").filter((r) => r.tabIndex === 0)).toHaveLength(1);
  });
  it("says so when nothing does, with what was answered today", async () => {
    await open();
    client.ask({ state: "denied", closed: Date.now() - 1000 });
    client.ask({ ...host("old.example.org"), state: "allowed", closed: Date.now() - 3 * 86_400_000 });
    await click("inbox");
    expect(test("nothing-waits")?.textContent).toContain("Nothing waits");
    expect(all("[data-test=past]").map((p) => p.textContent)).toEqual(["Denied vectors.example.org:443 13:59".replace(/ (?=13)/, "")]);
    expect(test("answer")).toBeNull();
    await accessible();
  });
});

describe("an ask", () => {
  it("leads with what, then who by the kernel, then what the program says, then the rule", async () => {
    await open();
    client.ask({ tries: 3, source: "/home/you/policy.toml:7", reason: "a server" });
    await press("a");
    const text = $(".ask")!.textContent ?? "";
    const order = ["Connect to", "vectors.example.org", "/usr/bin/curl", "a system program", "claude", "bash", "says:", "-sS", "network.default", "/home/you/policy.toml:7", "a server", "tideline", "3 tries"];
    const places = order.map((w) => text.indexOf(w));
    expect(places.every((p) => p >= 0), JSON.stringify(places)).toBe(true);
    expect(text.indexOf("says:")).toBeGreaterThan(text.indexOf("/usr/bin/curl"));
    expect(text.indexOf("network.default")).toBeGreaterThan(text.indexOf("says:"));
    expect(test("ask-says")?.classList.contains("t3"), "grey").toBe(true);
    await accessible();
  });
  it("counts the hold down where it is known, else says since when", async () => {
    await open();
    const ask = client.ask({ hold: 50_000 });
    await press("a");
    expect(test("ask-held")?.parentElement?.textContent).toContain("resets itself in 0:50");
    await wait(12_000);
    expect(test("ask-held")?.textContent).toBe("Held 0:12");
    expect(test("ask-held")?.parentElement?.textContent).toContain("resets itself in 0:38");
    await wait(40_000);
    expect(test("ask-held")?.parentElement?.textContent).toContain("an answer serves the next try");
    client.putAsks((d) => Object.assign(d.asks.find((a) => a.id === ask.id)!, { tries: 2 }));
    await settle();
    expect(test("ask-held")?.textContent).toBe("Held since 14:00:00");
  });
  it("whose run ended has words and no buttons", async () => {
    await open();
    client.ask();
    await press("a");
    await wait();
    client.putAsks((d) => Object.assign(d.asks[0]!, { state: "ended", closed: Date.now() }));
    await settle();
    expect(test("ask-over")?.textContent).toContain("Request ended with its run");
    expect(test("answer")).toBeNull();
    await press("o");
    expect(answers()).toHaveLength(0);
  });
  it("draws hostile names and arguments as text, whole", async () => {
    await open();
    const long = `${"a".repeat(60)}.${"b".repeat(60)}.example.org`;
    client.ask({ what: { about: "connect", host: `<img src=x>\u202Egro.${long}`, port: 443 }, title: HOSTILE.title, repository: "<b>repo</b>", reason: "\u0007<script>x</script>", process: { pid: 5, parent: 1, program: HOSTILE.markup, exe: HOSTILE.path, origin: "task", argv: [HOSTILE.argv], ancestry: [] } });
    await press("a");
    expect(all("img, script, .ask-top b, .ask-body b, .askrow b")).toHaveLength(0);
    expect(test("ask-what")?.textContent).toBe(`<img src=x>U+202Egro.${long}:443`);
    expect(test("ask-what")?.querySelector(".esc")?.textContent).toBe("U+202E");
    expect(test("ask")?.querySelector(".l2")?.textContent, "nor is it cut in the list").toContain(long);
    expect(all(".cut").every((e) => !e.textContent?.includes(long))).toBe(true);
    expect(test("allows")?.textContent).toContain(`${long}:443`);
    await click("scope-repo");
    expect(test("allows")?.textContent).toContain("<b>repo</b>");
    expect(document.body.textContent).not.toMatch(/[\u202a-\u202e\u2066-\u2069\u0000-\u0008\u001b]/);
    await accessible();
  });
});

describe("an answer", () => {
  it("counts only once the ask has been on screen for a while", async () => {
    await open();
    client.ask();
    await press("a");
    expect(armed()).toBe(false);
    expect(test("allow-once")?.getAttribute("aria-disabled")).toBe("true");
    for (const key of ["d", "o", "f"]) await press(key);
    for (const button of ["deny", "allow-once", "allow-longer"]) await click(button);
    await wait(ARMED_AFTER - 30);
    await press("o");
    expect(answers()).toHaveLength(0);
    await wait(60);
    expect(armed()).toBe(true);
    await press("o");
    const ask = (await client.asks(0))[0]!;
    expect(answers()).toEqual([["answer", ask.id, ask.digest, { answer: "allow", scope: "once", lasts: null }]]);
    await press("o");
    expect(answers()).toHaveLength(1);
  });
  it("is disarmed when what is shown changes, moves or was out of sight", async () => {
    await open();
    const ask = client.ask();
    await press("a");
    await wait();
    expect(armed()).toBe(true);
    client.putAsks((d) => (d.asks[0]!.tries = 2));
    await settle();
    expect(armed(), "one more try of the same is no other content").toBe(true);
    client.putAsks((d) => (d.asks[0]!.digest = "f".repeat(64)));
    await settle();
    expect(armed()).toBe(false);
    await press("f");
    expect(answers()).toHaveLength(0);
    await wait();
    await press("f");
    expect(answers()[0]?.slice(1, 3)).toEqual([ask.id, "f".repeat(64)]);

    client.ask();
    await settle();
    await wait();
    expect(armed()).toBe(true);
    window.dispatchEvent(new Event("resize"));
    await settle();
    expect(armed()).toBe(false);
    await wait();
    const hidden = vi.spyOn(document, "visibilityState", "get").mockReturnValue("hidden");
    document.dispatchEvent(new Event("visibilitychange"));
    await wait(60_000);
    expect(armed()).toBe(false);
    hidden.mockRestore();
    document.dispatchEvent(new Event("visibilitychange"));
    await wait();
    expect(armed()).toBe(true);
  });
  it("leads to the next ask's Deny, which is not armed yet", async () => {
    await open();
    client.ask();
    client.ask(host("second.example.org"));
    await press("a");
    await wait();
    await press("d");
    expect(answers()[0]?.[3]).toEqual({ answer: "deny" });
    expect(test("ask-what")?.textContent).toBe("second.example.org:443");
    expect(document.activeElement).toBe(test("deny"));
    await press("d");
    await click("deny");
    expect(answers()).toHaveLength(1);
    const enter = new KeyboardEvent("keydown", { key: "Enter", bubbles: true, cancelable: true, repeat: true });
    test("deny")!.dispatchEvent(enter);
    expect(enter.defaultPrevented, "a key that is held down answers nothing more").toBe(true);
    await wait();
    await click("deny");
    expect(answers()).toHaveLength(2);
    expect(test("nothing-waits")).not.toBeNull();
    expect(all("[data-test=past]")).toHaveLength(2);
  });
  it("says what exactly it allows, as scope and end are chosen", async () => {
    await open();
    client.ask();
    client.ask({ what: { about: "connect", host: "203.0.113.9", port: 8443 } });
    await press("a");
    expect(test("allows")?.textContent).toBe("Every program of this task may connect to vectors.example.org:443 until 14:30. It does not allow other ports or names.");
    await click("scope-repo");
    await click("end-four");
    expect(test("allows")?.textContent).toBe("Every program of every task of tideline, later ones too, may connect to vectors.example.org:443 until 18:00. It does not allow other ports or names.");
    await click("end-good");
    expect(test("allows")?.textContent).toContain(", for good.");
    await click("end-today");
    expect(test("allows")?.textContent).toContain("until midnight");
    expect(test("allow-longer")?.textContent).toContain("Allow for today");
    await wait();
    await press("f");
    expect(answers()[0]?.[3]).toMatchObject({ answer: "allow", scope: "repo" });
    const { lasts } = answers()[0]![3] as { lasts: number };
    expect(new Date(Date.now() + lasts).getHours(), "at midnight").toBe(0);
    // The next one starts narrow again.
    expect(test("scope-task")?.getAttribute("aria-checked")).toBe("true");
    expect(test("end-half")?.getAttribute("aria-checked")).toBe("true");
    expect(test("allows")?.textContent).toContain("other ports or addresses");
  });
  it("that came too late shows the engine's words and keeps the ask in sight", async () => {
    await open();
    client.ask();
    await press("a");
    await wait();
    client.failNext("answer", "stale", "ask kaaaaaaa was answered already: `airlock ask show kaaaaaaa` says how");
    await press("o");
    expect(test("answer-failed")?.textContent).toContain("was answered already");
    expect(test("answer-failed")?.textContent).toContain("stale");
    expect(test("ask-what")).not.toBeNull();
    await accessible();
  });
  it("is never given for many, nor preselected", async () => {
    await open();
    for (let i = 0; i < 3; i++) client.ask(host(`n${i}.example.org`));
    await press("a");
    await wait();
    expect(all("#view-inbox button").filter((b) => /\ball\b/i.test(b.textContent ?? ""))).toHaveLength(0);
    expect(all(".answer .primary")).toHaveLength(0);
    expect(document.activeElement).toBe(test("deny"));
    await press("j");
    expect(test("ask-what")?.textContent).toBe("n1.example.org:443");
    expect(armed(), "another one is shown").toBe(false);
    await press("k");
    expect(test("ask-what")?.textContent).toBe("n0.example.org:443");
    expect(document.activeElement).toBe(test("deny"));
    const row = all("[data-test=ask]")[0]!;
    row.focus();
    await press("ArrowDown", {}, row);
    expect(document.activeElement).toBe(all("[data-test=ask]")[1]);
  });
});

describe("grants", () => {
  const grant = (more: object) => ({ id: "g", title: "Recover from a torn WAL tail", repository: "tideline", what: host("api.example.org").what, made: Date.now(), until: null, left: null, used: 0, revoked: null, lives: true, ...more });
  it("are listed with whom, until, use and state, and taken back with a count", async () => {
    await open();
    client.putAsks((d) => {
      d.grants.push(grant({ id: "g1", until: Date.now() + 1_800_000, used: 4 }), grant({ id: "g2", title: null, used: 1 }), grant({ id: "g3", left: 0, lives: false, used: 1 }), grant({ id: "g4", until: Date.now() - 1, lives: false }), grant({ id: "g5", revoked: Date.now(), lives: false }));
    });
    await click("inbox");
    await click("inbox-list-grants");
    const rows = all("[data-test=grant]");
    expect(rows.map((r) => r.dataset["state"])).toEqual(["Live", "Live", "Used up", "Over", "Revoked"]);
    expect(rows[0]?.textContent).toMatch(/api\.example\.org:443.*Recover.*tideline.*14:30.*4 times/);
    expect(rows[1]?.textContent).toMatch(/Every task.*for good.*1 time/);
    expect(rows.map((r) => r.querySelector("[data-test=revoke]") !== null), "what a used-up grant let out may go on").toEqual([true, true, true, false, false]);
    await accessible();
    await click("revoke");
    expect(client.calls.filter((c) => c[0] === "revoke")).toEqual([["revoke", "g1"]]);
    expect(test("revoked")?.textContent).toContain("1 connection was closed");
    expect(all("[data-test=grant]")[0]?.dataset["state"]).toBe("Revoked");
    client.failNext("revoke", "machine", "grant g2 permits nothing new, but what lives by it may go on");
    await click("revoke");
    expect(test("revoke-failed")?.textContent).toContain("may go on");
  });
  it("say so when there are none", async () => {
    await open();
    await click("inbox");
    await click("inbox-list-grants");
    expect(test("no-grants")).not.toBeNull();
    await accessible();
  });
});

describe("Activity", () => {
  it("tells what was held, asked and answered", async () => {
    await open();
    await click("tab-activity");
    const rows = all("[data-test=event]").map((e) => ({ kind: e.dataset["kind"], text: e.textContent ?? "" }));
    expect(rows.find((r) => r.kind === "ask")?.text).toMatch(/asks for\s*vectors\.example\.org:443.*Held/);
    expect(rows.find((r) => r.kind === "decision")?.text).toMatch(/your answer\s*vectors\.example\.org:443.*allowed for the task.*Allowed.*grant gggggggg/);
    await click("verdict-held");
    expect(all("[data-test=event]").map((e) => e.dataset["kind"])).toEqual(["network", "ask"]);
    expect(all("[data-test=event].held")).toHaveLength(2);
    await accessible();
  });
});
