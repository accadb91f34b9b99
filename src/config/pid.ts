import * as z from 'zod/mini';
import { fromText } from './from-text.ts';

export const optionalPidForm = 'the id of a process, as in 1; empty for none';

/** The id of a process; undefined for none. PID_MAX_LIMIT of the kernel is 2^22. YAML takes it for a number. */
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
