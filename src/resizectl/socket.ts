import { UsageError } from './output/index.ts';

/** Returns the path in an address such as `unix:///run/x.sock`. Throws UsageError with the name of the flag if the address is invalid. */
export function socketPath(flag: string, address: string): string {
  const path = address.replace(/^unix:(?:\/\/)?/, '');
  if (path.startsWith('/')) return path;
  throw new UsageError(`${flag}: invalid address ${JSON.stringify(address)}: expected unix:// and an absolute path`);
}
