import { UsageError } from './output/index.ts';

/** The path in an address such as `unix:///run/x.sock`. Throws UsageError, naming the flag, when there is none. */
export function socketPath(flag: string, address: string): string {
  const path = address.replace(/^unix:(?:\/\/)?/, '');
  if (path.startsWith('/')) return path;
  throw new UsageError(`${flag}: ${JSON.stringify(address)} must be unix:// and an absolute path`);
}
