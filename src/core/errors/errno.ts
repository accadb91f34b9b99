import { constants } from 'node:os';

/** The kernel's name of an error number: EINVAL. */
export function nameOfErrno(number: number): string {
  const [name] = Object.entries(constants.errno).find(([, value]) => value === number) ?? [];
  return name ?? `errno ${number}`;
}
