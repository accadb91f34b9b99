import type * as Promises from 'node:fs/promises';

/** Writes to disk, renames and removals, in this order: `sync a`, `rename a b`, `rm a`. */
export const diskOrder: string[] = [];

/** A node:fs/promises that records {@link diskOrder}, for `vi.mock`. */
export function noting(original: typeof Promises): typeof Promises {
  return {
    ...original,
    async open(path, ...options) {
      const file = await original.open(path, ...options);
      const sync = file.sync.bind(file);
      file.sync = async () => {
        await sync();
        diskOrder.push(`sync ${String(path)}`);
      };
      return file;
    },
    async rename(from, to) {
      await original.rename(from, to);
      diskOrder.push(`rename ${String(from)} ${String(to)}`);
    },
    async rm(path, options) {
      await original.rm(path, options);
      diskOrder.push(`rm ${String(path)}`);
    },
  };
}
