import { existsSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ShimError } from '../../../src/core/errors.ts';
import { Journal } from '../../../src/sandbox/journal/store.ts';
import { decodeRecord, encodeRecord } from '../../../src/sandbox/journal/record.ts';
import { numbered, podUid } from '../../support/journal/numbered.ts';
import { memoryFolder } from '../memory-folder.ts';
import { mutateBytes } from '../mutations/bytes.ts';
import { mutateJson } from '../mutations/json.ts';
import type { Random } from '../random.ts';
import { recordForms } from '../seeds/records.ts';
import type { Target } from '../target.ts';
import { type Parser, isPlainError, parserTarget } from './parser.ts';

const BOOT = 'fuzz-boot';
const whole = encodeRecord(numbered(7), BOOT);

/** A record whose structure or bytes are mutated. */
function recordBytes(random: Random): Buffer {
  if (random.chance(3)) return mutateBytes(whole, random);
  return Buffer.from(mutateJson(random.pick(recordForms), random), random.chance(10) ? 'latin1' : 'utf8');
}

/** Records as content, and in a folder of the journal next to a good one. */
export function journalTarget(): Target {
  const folder = memoryFolder('fuzz-journal-');
  const good = '2b4e28ba-2fa1-11d2-883f-0016d3cca428';
  const record: Parser = {
    name: 'record',
    make: recordBytes,
    parse: (content) => {
      const { bootId, ...read } = decodeRecord(content as Buffer);
      encodeRecord(read, bootId);
    },
    // decodeRecord: "Throws an Error that names the fault". What is read can be written again, up to the largest size.
    isDocumented: (error) => isRecordFault(error) || (error instanceof ShimError && error.reason === 'INVALID_VALUE'),
  };
  const files: Parser = {
    name: 'folder',
    make: recordBytes,
    parse: async (content) => {
      for (const name of [`${podUid}.json`, `${podUid}.json.tmp`, `${podUid}.json.newer`, 'sha256-torn.json'])
        writeFileSync(join(folder, name), content);
      writeFileSync(join(folder, `${good}.json`), encodeRecord(numbered(1, good), BOOT));
      const journal = await Journal.open(folder, { bootId: BOOT });
      const loaded = await journal.load();
      await journal.close();
      if (!loaded.some((one) => one.podUid === good)) throw new Error('the record of another pod is lost');
      if (existsSync(join(folder, `${podUid}.json.tmp`))) throw new Error('a temporary file is left');
      if (readdirSync(folder).length > 8) throw new Error('files are left');
      for (const name of readdirSync(folder)) rmSync(join(folder, name));
    },
    isDocumented: () => false,
  };
  // Each round in the folder waits for the disk.
  const parsers = [...Array.from({ length: 49 }, () => record), files];
  return parserTarget('journal', parsers, () => rmSync(folder, { recursive: true }));
}

const isRecordFault = (error: unknown): boolean =>
  error instanceof Error &&
  /^(?:is not (?:valid JSON|a journal record)|has version)/.test(error.message) &&
  (isPlainError(error) || error.constructor.name === 'NewerRecord');
