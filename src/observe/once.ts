/**
 * Returns a function that is true for the first use of a key, to log something once instead of with every call. It remembers
 * the `capacity` most recently used keys; a forgotten key counts as new.
 */
export function oncePerKey(capacity = 1024): (key: string) => boolean {
  const seen = new Set<string>();
  return (key) => {
    const first = !seen.delete(key);
    // Moves the key to the end, so that the first one is the least recently used.
    seen.add(key);
    if (seen.size > capacity) {
      const [oldest] = seen;
      if (oldest !== undefined) seen.delete(oldest);
    }
    return first;
  };
}
