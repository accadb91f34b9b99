import * as z from 'zod/mini';

/** Says what is wrong with a value, to be returned in the place of what it is read as. */
export type Refuse = (message: string) => never;

/** A setting that is written as a text, and read as something else. */
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
