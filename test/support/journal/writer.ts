import { writeSync } from 'node:fs';
import { Journal } from '../../../src/sandbox/journal/store.ts';
import { numbered, podUid } from './numbered.ts';

/**
 * A process for tests to kill. It writes records with increasing numbers one after the other, and prints which write it
 * starts and which has reached the disk. Arguments: the folder, the first number, and the number of writes (default:
 * until it is killed). After a limited run it removes the record. WRITER_UID: the user to continue as. The process
 * begins as root, because that user may not reach the program of Node.
 */
const [, , folder = '', first = '0', count = 'Infinity'] = process.argv;
const { WRITER_UID } = process.env;
if (WRITER_UID !== undefined) process.setuid!(Number(WRITER_UID));
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
