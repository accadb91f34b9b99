/**
 * For what is logged once and not with every call: gives a function that is true for the first use of a key. It
 * remembers the last `capacity` keys; one that was forgotten is true again.
 */
export function oncePerKey(capacity = 1024): (key: string) => boolean {
  const seen = new Set<string>();
  return (key) => {
    const first = !seen.delete(key);
    // The newest last: the one that goes is the one not met for the longest time.
    seen.add(key);
    if (seen.size > capacity) {
      const [oldest] = seen;
      if (oldest !== undefined) seen.delete(oldest);
    }
    return first;
  };
}
