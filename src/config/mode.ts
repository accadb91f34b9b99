import { fromText } from './from-text.ts';

/** What a file mode looks like, for errors and documentation. A text: YAML takes 0600 for six hundred. */
export const modeForm = 'an octal mode as a text, as in "0600" or "0660"';

/** Permission bits in octal; the output is their number. */
export const mode = fromText((text, refuse) =>
  /^0?[0-7]{3}$/.test(text) ? Number.parseInt(text, 8) : refuse(`must be ${modeForm}`),
);
