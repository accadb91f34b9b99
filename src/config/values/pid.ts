import * as z from 'zod/mini';
import { fromText } from './from-text.ts';

export const optionalPidForm = 'a process ID, such as 1, or empty for none';

/** A process ID; undefined for none. At most 2^22, the kernel's PID_MAX_LIMIT. YAML reads it as a number. */
export const optionalPid = z.pipe(
  z.pipe(
    z.union([z.string(), z.number()]),
    z.transform((written: string | number) => String(written)),
  ),
  fromText((text, refuse): number | undefined => {
    if (text === '') return undefined;
    const pid = /^[1-9]\d{0,6}$/.test(text) ? Number(text) : Number.NaN;
    return pid <= 2 ** 22 ? pid : refuse(`must be ${optionalPidForm}`);
  }),
);
