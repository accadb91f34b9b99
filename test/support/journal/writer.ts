import { writeSync } from 'node:fs';
import { numbered, podUid } from './numbered.ts';
import { Journal } from '../../../src/resize/journal/store.ts';

/**
 * A process to be killed: writes records with rising numbers, one after the other, and says on stdout what it begins and
 * what has reached the disk. Arguments: the folder, the first number, and how many (without: until it is killed). The
 * record goes at the end of a counted run.
 */
const [, , folder = '', first = '0', count = 'Infinity'] = process.argv;
const say = (text: string): void => void writeSync(1, `${text}\n`);

try {
  const journal = await Journal.open(folder, { bootId: 'boot' });
  const end = Number(first) + Number(count);
  for (let number = Number(first); number < end; number += 1) {
    say(`begin ${number}`);
    await journal.write(numbered(number));
    say(`done ${number}`);
  }
  await journal.remove(podUid);
  say('removed');
} catch (error) {
  say(`failed ${JSON.stringify({ ...(error as object), message: (error as Error).message })}`);
}
