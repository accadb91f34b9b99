import * as z from 'zod/mini';

/** Reports an invalid value. A reader returns the result in place of a value. */
export type Refuse = (message: string) => never;

/** A setting that is written as a string and read as another type. */
export const fromText = <Value>(read: (text: string, refuse: Refuse) => Value) =>
  z.pipe(
    z.string(),
    z.transform((text: string, context) => {
      const refuse = (message: string): never => {
        context.issues.push({ code: 'custom', message, input: text });
        return z.NEVER;
      };
      return read(text, refuse);
    }),
  );
