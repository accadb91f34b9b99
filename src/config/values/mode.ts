import { fromText } from './from-text.ts';

/** The form of a file mode, for errors and documentation. A string, because YAML reads 0600 as the number 600. */
export const modeForm = 'an octal mode as a string, such as "0600" or "0660"';

export const modePattern = /^0?[0-7]{3}$/;

/** Permission bits in octal. Reads as a number. */
export const mode = fromText((text, refuse) =>
  modePattern.test(text) ? Number.parseInt(text, 8) : refuse(`must be ${modeForm}`),
);
