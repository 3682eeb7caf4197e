// Times and amounts in words, without the locale's surprises in tests.

const two = (n: number) => String(n).padStart(2, "0");

/** `14:32:07.418` in the person's zone. */
export function clock(ms: number): { hours: string; rest: string } {
  const d = new Date(ms);
  return { hours: `${two(d.getHours())}:`, rest: `${two(d.getMinutes())}:${two(d.getSeconds())}.${String(d.getMilliseconds()).padStart(3, "0")}` };
}

/** `00:41:07`. */
export function elapsed(ms: number): string {
  const s = Math.max(0, Math.floor(ms / 1000));
  return `${two(Math.floor(s / 3600))}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`;
}

/** `2.3 s`, from a minute on as `elapsed`. */
export function lasted(ms: number): string {
  return ms < 60_000 ? `${(ms / 1000).toFixed(1)} s` : elapsed(ms);
}

/** `41 min`, `2 h`, `3 d`; below a minute `now`. */
export function ago(ms: number): string {
  const min = Math.floor(ms / 60_000);
  if (min < 1) return "now";
  if (min < 60) return `${min} min`;
  const h = Math.floor(min / 60);
  return h < 48 ? `${h} h` : `${Math.floor(h / 24)} d`;
}

/** `8,214`. */
export function count(n: number): string {
  return String(n).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

/** `4.0 KiB`. */
export function size(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let n = bytes;
  let u = 0;
  while (n >= 1024 && u < units.length - 1) {
    n /= 1024;
    u += 1;
  }
  return u === 0 ? `${n} B` : `${n.toFixed(1)} ${units[u]}`;
}

/** `1 file`, `2 files`. */
export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}
