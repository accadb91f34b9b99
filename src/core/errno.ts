import { constants } from 'node:os';

/** Returns the name of a kernel error number, such as EINVAL. */
export function nameOfErrno(number: number): string {
  const [name] = Object.entries(constants.errno).find(([, value]) => value === number) ?? [];
  return name ?? `errno ${number}`;
}
