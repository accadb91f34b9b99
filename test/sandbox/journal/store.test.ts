import type { ChildProcess } from 'node:child_process';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import fc from 'fast-check';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { ANSWER_MS, RECHECK_MS } from '../../../src/sandbox/journal/availability.ts';
import { StateFolder } from '../../../src/sandbox/journal/files.ts';
import type { LoadedRecord } from '../../../src/sandbox/journal/loader.ts';
import { Journal } from '../../../src/sandbox/journal/store.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { numbered, numberIn, podUid, volumeOf } from '../../support/journal/numbered.ts';
import { anyRecord } from '../../support/journal/records.ts';
import { modeOf, ofThisBoot, recordName, TestFolder, uid } from '../../support/journal/test-folder.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

let state: TestFolder;

describe('JournalStore', () => {
  beforeEach(() => {
    state = new TestFolder();
  });

  afterEach(() => state.remove());

  describe('the journal', () => {
    test('returns the written records after a restart, and no removed ones', async () => {
      const journal = await state.open();
      expect(journal.readiness).toEqual({ ready: true });
      expect(await journal.load()).toEqual([]);
      await journal.write(numbered(1));
      await journal.write(numbered(2, uid(2)));
      await journal.write(numbered(3));
      expect(await (await state.open()).load()).toEqual([ofThisBoot(numbered(2, uid(2))), ofThisBoot(numbered(3))]);
      await journal.remove(podUid);
      expect(await (await state.open()).load()).toEqual([ofThisBoot(numbered(2, uid(2)))]);
      await journal.remove(podUid);
      await journal.remove('never-written');
      await journal.remove(uid(2));
      expect(readdirSync(state.folder)).toEqual([]);
      await state.closeAll();
      expect(state.descriptors()).toEqual([]);
      expect(state.logged).toEqual([]);
    });

    test('stores any valid record and returns it unchanged', async () => {
      const journal = await state.open();
      await fc.assert(
        fc.asyncProperty(anyRecord, async (record) => {
          await journal.write(record);
          expect(await journal.load()).toStrictEqual([ofThisBoot(record)]);
          await journal.remove(record.podUid);
          expect(await journal.load()).toEqual([]);
        }),
        { numRuns: 50 },
      );
    });

    test('creates its folder with mode 0700 and files with mode 0600', async () => {
      state.folder = join(state.base, 'a/b/state');
      const journal = await state.open();
      await journal.write(numbered(1));
      expect([modeOf(state.folder), modeOf(state.path(recordName))]).toEqual(['700', '600']);
    });

    test('reads the boot id of the kernel when none is given', async () => {
      const journal = await state.openAnyBoot({});
      await journal.write(numbered(1));
      const { bootId } = JSON.parse(readFileSync(state.path(recordName), 'utf8')) as { bootId: string };
      expect(bootId).toBe(readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim());
      expect(await (await state.openAnyBoot({})).load()).toEqual([ofThisBoot(numbered(1))]);
    });

    test('writes no file outside its folder, for any pod uid', async () => {
      const journal = await state.open();
      const uids = ['../../etc/x', '../x', '/etc/x', '..', '', 'a/b', `${podUid}/../x`, 'x'.repeat(5000)];
      for (const [index, name] of uids.entries()) await journal.write(numbered(index, name));
      expect(readdirSync(state.base)).toEqual(['state']);
      expect(readdirSync(state.folder)).toHaveLength(uids.length);
      expect((await (await state.open()).load()).map((record) => record.podUid).sort()).toEqual([...uids].sort());
      for (const name of uids) await journal.remove(name);
      expect(readdirSync(state.folder)).toEqual([]);
    });

    test('does not change files that do not belong to the journal', async () => {
      const journal = await state.open();
      for (const name of ['notes.txt', 'config.json', 'x.bad', 'y.json.tmp']) writeFileSync(state.path(name), '{');
      await journal.write(numbered(1));
      expect(await journal.load()).toEqual([ofThisBoot(numbered(1))]);
      expect(readdirSync(state.folder).sort()).toEqual([recordName, 'config.json', 'notes.txt', 'x.bad', 'y.json.tmp']);
    });
  });

  describe('journal writes', () => {
    test('writes of one pod run one after the other, and the newest wins', async () => {
      const journal = await state.open();
      await Promise.all(Array.from({ length: 50 }, (_, index) => journal.write(numbered(index))));
      expect(await journal.load()).toEqual([ofThisBoot(numbered(49))]);
      await Promise.all([journal.write(numbered(60)), journal.remove(podUid)]);
      expect(await journal.load()).toEqual([]);
      await Promise.all([
        journal.remove(podUid),
        journal.write(numbered(70)),
        journal.remove(podUid),
        journal.write(numbered(71)),
      ]);
      expect(await journal.load()).toEqual([ofThisBoot(numbered(71))]);
    });

    test('a write stores the record as it is at the call, even if it changes afterwards', async () => {
      const journal = await state.open();
      const volumes = new Map([['cache', volumeOf(1)]]);
      const writing = journal.write({ podUid, sandboxId: 's', volumes });
      volumes.set('cache', volumeOf(2));
      await writing;
      expect((await journal.load())[0]?.volumes).toEqual(new Map([['cache', volumeOf(1)]]));
    });

    test('writes of one pod run concurrently with writes of other pods and with reads', async () => {
      const journal = await state.open();
      const writes = Array.from({ length: 400 }, (_, index) => journal.write(numbered(index, uid(index % 40))));
      for (let round = 0; round < 5; round += 1)
        for (const record of await journal.load())
          expect(record).toEqual(ofThisBoot(numbered(numberIn(record), record.podUid)));
      await Promise.all(writes);
      expect((await journal.load()).map(numberIn)).toEqual(Array.from({ length: 40 }, (_, index) => 360 + index));
      expect(readdirSync(state.folder)).toHaveLength(40);
      expect(state.counters.snapshot().journalFaults).toEqual({});
    });
  });

  test('a removal until the next boot does not need the open state folder, a durable removal does', async () => {
    const journal = await state.open();
    await journal.write(numbered(1));
    await journal.write(numbered(2, uid(2)));
    const used = vi.spyOn(StateFolder.prototype, 'use');
    await journal.remove(podUid, 'this-boot');
    expect(used).not.toHaveBeenCalled();
    await journal.remove(uid(2));
    expect(used).toHaveBeenCalledTimes(1);
    expect(readdirSync(state.folder)).toEqual([]);
    used.mockRestore();
  });

  describe('a journal of an earlier boot', () => {
    test('only volumes and deferred requests remain of the records of an earlier boot', async () => {
      const resizes = [{ id: 'r1', memory: 5 }, null];
      const journal = await state.open({ bootId: 'boot-1' });
      await journal.write(numbered(1));
      await journal.write({ ...numbered(2, uid(2)), volumes: new Map(), resizes });
      await journal.write({ ...numbered(3, uid(3)), volumes: new Map() });
      const later = await state.open({ bootId: 'boot-2' });
      // The mount of the earlier boot does not exist any more.
      const { mount, ...withoutMount } = volumeOf(1);
      expect(mount).toBeDefined();
      for (let round = 0; round < 2; round += 1) {
        expect(await later.load()).toEqual([
          { podUid: uid(2), sandboxId: 'sandbox-2', volumes: new Map(), resizes, earlierBoot: true },
          { podUid, sandboxId: 'sandbox-1', volumes: new Map([['cache', withoutMount]]), earlierBoot: true },
        ]);
      }
      expect(readdirSync(state.folder)).toHaveLength(2);
      await later.write(numbered(4));
      expect(await later.load()).toContainEqual(ofThisBoot(numbered(4)));
    });
  });
});

describe('a bad journal file', () => {
  beforeEach(() => {
    state = new TestFolder();
  });

  afterEach(() => state.remove());

  const bad: [string, () => void][] = [
    ['of an earlier version', () => writeFileSync(state.path(recordName), '{"version":2}')],
    ['of another pod', () => renameSync(state.path(`${uid(2)}.json`), state.path(recordName))],
    ['too large', () => truncateSync(state.path(recordName), MiB + 1)],
    ['a folder', () => mkdirSync(state.path(recordName))],
    ['a symbolic link to a valid file', () => symlinkSync(state.path(`${uid(2)}.json`), state.path(recordName))],
    ['a dangling symbolic link', () => symlinkSync('/nothing', state.path(recordName))],
    ['a pipe', () => void execFileSync('mkfifo', [state.path(recordName)])],
  ];
  test.each(bad)(
    'a journal file that is %s is renamed, counted and logged once, and the other files are read',
    async (_, makeBad) => {
      const journal = await state.open();
      await journal.write(numbered(1));
      await journal.write(numbered(2, uid(2)));
      await journal.write(numbered(3, uid(3)));
      if (!makeBad.toString().includes('truncate')) rmSync(state.path(recordName));
      makeBad();
      expect(await journal.load()).toContainEqual(ofThisBoot(numbered(3, uid(3))));
      expect(await journal.load()).toContainEqual(ofThisBoot(numbered(3, uid(3))));
      expect(existsSync(state.path(recordName))).toBe(false);
      expect(lstatSync(state.path(`${recordName}.bad`))).toBeDefined();
      expect(state.counters.snapshot().journalFaults).toEqual({ bad_record: 1 });
      expect(state.logged).toEqual([
        {
          level: 'error',
          fields: { file: state.path(recordName), error: expect.any(String) as unknown, movedTo: `${recordName}.bad` },
          message: 'journal record unreadable',
        },
      ]);
      await state.closeAll();
      expect(state.descriptors()).toEqual([]);
      expect(journal.readiness.ready).toBe(true);
      // Opens the folder again, so the journal is closed: Node ends a process that leaves this to garbage collection.
      await journal.write(numbered(4));
      expect(await journal.load()).toContainEqual(ofThisBoot(numbered(4)));
      await journal.close();
    },
  );

  test('a journal file that is truncated at any byte is not read, and does not fail the load', async () => {
    const journal = await state.open();
    await journal.write(numbered(1));
    const content = readFileSync(state.path(recordName));
    for (let length = 0; length <= content.length; length += 1) {
      writeFileSync(state.path(recordName), content.subarray(0, length));
      expect(await journal.load()).toEqual(length >= content.length - 1 ? [ofThisBoot(numbered(1))] : []);
    }
    // An empty file is not counted.
    expect(state.counters.snapshot().journalFaults).toEqual({ bad_record: content.length - 2 });
    expect(readdirSync(state.folder).sort()).toEqual([recordName, `${recordName}.bad`]);
    expect(state.messages).toEqual(['empty journal record removed', 'journal record unreadable']);
  });

  test('an empty journal file, which a crash of the machine can leave, is removed without a fault', async () => {
    const journal = await state.open();
    await journal.write(numbered(1, uid(2)));
    writeFileSync(state.path(recordName), '');
    expect(await journal.load()).toEqual([ofThisBoot(numbered(1, uid(2)))]);
    expect(readdirSync(state.folder)).toEqual([`${uid(2)}.json`]);
    expect(state.counters.snapshot().journalFaults).toEqual({});
    expect(state.messages).toEqual(['empty journal record removed']);
  });

  test('bad journal files are stored under another name, up to the newest sixteen of them', async () => {
    const journal = await state.open();
    for (let index = 0; index < 30; index += 1) {
      writeFileSync(state.path(`${uid(index)}.json`), `${index}`);
      await journal.load();
    }
    const left = readdirSync(state.folder);
    expect(left.sort()).toEqual(Array.from({ length: 16 }, (_, index) => `${uid(index + 14)}.json.bad`));
    expect(readFileSync(state.path(`${uid(20)}.json.bad`), 'utf8')).toBe('20');
  });

  test('a temporary journal file left by a crash is removed at load', async () => {
    const journal = await state.open();
    await journal.write(numbered(1));
    writeFileSync(state.path(`${recordName}.tmp`), 'half');
    writeFileSync(state.path(`${uid(2)}.json.tmp`), 'half');
    expect(await journal.load()).toEqual([ofThisBoot(numbered(1))]);
    expect(readdirSync(state.folder)).toEqual([recordName]);
  });

  test('a temporary journal file left by a crash does not prevent a write or its retry', async () => {
    const journal = await state.open();
    for (const leave of [
      (name: string) => writeFileSync(name, 'x'.repeat(100_000)),
      (name: string) => symlinkSync(join(state.base, 'elsewhere'), name),
    ]) {
      leave(state.path(`${recordName}.tmp`));
      await journal.write(numbered(1)).catch(() => journal.write(numbered(1)));
      expect(await journal.load()).toEqual([ofThisBoot(numbered(1))]);
      await journal.remove(podUid);
    }
    expect(readdirSync(state.base)).toEqual(['state']);
  });
});

describe('the state folder', () => {
  beforeEach(() => {
    state = new TestFolder();
  });

  afterEach(() => state.remove());

  const unavailable = (context: object) => ({
    code: 9,
    reason: 'JOURNAL_UNAVAILABLE',
    context: expect.objectContaining(context) as unknown,
  });

  test.each([
    [
      'that is writable by others',
      () => mkdirSync(state.folder),
      0o777,
      'the state folder is writable by group or others (mode 777): expected 700',
    ],
    [
      'that is writable by a group',
      () => mkdirSync(state.folder),
      0o770,
      'the state folder is writable by group or others (mode 770): expected 700',
    ],
    ['that is a file', () => writeFileSync(state.folder, ''), 0o600, 'ENOTDIR'],
  ])('a state folder %s is rejected for writes until it is fixed, and loads as empty', async (_, make, rights, why) => {
    make();
    chmodSync(state.folder, rights);
    const journal = await state.open();
    expect(journal.readiness).toMatchObject({ ready: false, error: unavailable({}) });
    expect(await journal.load()).toEqual([]);
    await expect(journal.write(numbered(1))).rejects.toMatchObject(
      unavailable({ pod: podUid, file: state.path(recordName) }),
    );
    await expect(journal.write(numbered(1))).rejects.toThrow(why);
    await expect(journal.remove(podUid)).rejects.toMatchObject(unavailable({ pod: podUid }));
    expect(state.messages).toEqual(['journal unavailable']);
    rmSync(state.folder, { recursive: true });
    expect(await journal.check()).toEqual({ ready: true });
    await journal.write(numbered(2));
    expect(state.messages).toEqual(['journal unavailable', 'journal writable again']);
    await state.closeAll();
    expect(state.descriptors()).toEqual([]);
  });

  test('creates a removed state folder again', async () => {
    const journal = await state.open();
    await journal.write(numbered(1));
    rmSync(state.folder, { recursive: true });
    await journal.write(numbered(2));
    expect(await journal.load()).toEqual([ofThisBoot(numbered(2))]);
    expect(modeOf(state.folder)).toBe('700');
  });

  test('stores the records of two pods in a state folder that is replaced repeatedly', async () => {
    const journal = await state.open();
    for (let round = 1; round <= 20; round += 1) {
      const replaced = `${state.folder}-${round}`;
      renameSync(state.folder, replaced);
      if (round % 2 === 0) mkdirSync(state.folder, { mode: 0o700 });
      await Promise.all([journal.write(numbered(round, uid(1))), journal.write(numbered(round, uid(2)))]);
      expect(readdirSync(state.folder).sort()).toEqual([`${uid(1)}.json`, `${uid(2)}.json`]);
      rmSync(replaced, { recursive: true });
    }
    expect(state.messages).toEqual([]);
    await expect.poll(() => state.descriptors(), LONG_WAIT).toEqual([state.folder]);
    await state.closeAll();
    expect(state.descriptors()).toEqual([]);
  });

  test('a check recognizes a fixed state folder and repeats failed removals, but removes no newer record', async () => {
    const journal = await state.open();
    await journal.write(numbered(1));
    await journal.write(numbered(2, uid(2)));
    renameSync(state.folder, `${state.folder}-away`);
    writeFileSync(state.folder, '');
    for (const name of [podUid, uid(2)]) {
      await expect(journal.remove(name)).rejects.toMatchObject(
        unavailable({ errno: 'ENOTDIR', file: state.path(`${name}.json`) }),
      );
    }
    expect((await journal.check()).ready).toBe(false);
    rmSync(state.folder);
    renameSync(`${state.folder}-away`, state.folder);
    expect(journal.readiness.ready).toBe(false);
    // A failed removal is not repeated when a newer record is being written.
    const [, readiness] = await Promise.all([journal.write(numbered(3, uid(2))), journal.check()]);
    expect(readiness).toEqual({ ready: true });
    expect(await (await state.open()).load()).toEqual([ofThisBoot(numbered(3, uid(2)))]);
    expect(readdirSync(state.folder)).toEqual([`${uid(2)}.json`]);
  });

  test('a timer recognizes a fixed state folder, and then stops', async () => {
    writeFileSync(state.folder, '');
    const clock = new FakeClock();
    const journal = await state.open({ clock });
    const checked = async (): Promise<boolean> => {
      expect(clock.pass(RECHECK_MS)).toBe(1);
      return (await journal.check()).ready;
    };
    expect(await checked()).toBe(false);
    rmSync(state.folder);
    expect(clock.pass(RECHECK_MS)).toBe(1);
    await expect.poll(() => journal.readiness, LONG_WAIT).toEqual({ ready: true });
    expect(clock.next).toBeUndefined();
    expect(state.messages).toEqual(['journal unavailable', 'journal writable again']);
  });

  test('a timer stores the last record of each pod in a fixed state folder, even after a successful write of another pod', async () => {
    const clock = new FakeClock();
    const journal = await state.open({ clock });
    await journal.write(numbered(1, uid(1)));
    await journal.write(numbered(1, uid(2)));
    renameSync(state.folder, `${state.folder}-away`);
    writeFileSync(state.folder, '');
    await expect(journal.write(numbered(2, uid(1)))).rejects.toMatchObject({ reason: 'JOURNAL_UNAVAILABLE' });
    await expect(journal.remove(uid(2))).rejects.toMatchObject({ reason: 'JOURNAL_UNAVAILABLE' });
    rmSync(state.folder);
    renameSync(`${state.folder}-away`, state.folder);
    await journal.write(numbered(1, uid(3)));
    expect(journal.readiness).toEqual({ ready: true });
    expect(clock.pass(RECHECK_MS)).toBe(1);
    await expect.poll(() => readdirSync(state.folder).sort(), LONG_WAIT).toEqual([`${uid(1)}.json`, `${uid(3)}.json`]);
    const found = await (await state.open()).load();
    expect(found).toEqual(expect.arrayContaining([ofThisBoot(numbered(2, uid(1)))]));
  });

  test('a check stores the record of a pod although the file of another pod still cannot be changed', async () => {
    const journal = await state.open();
    await journal.write(numbered(1, uid(1)));
    rmSync(state.path(`${uid(1)}.json`));
    mkdirSync(state.path(`${uid(1)}.json/occupied`), { recursive: true });
    await expect(journal.remove(uid(1))).rejects.toMatchObject({ reason: 'JOURNAL_UNAVAILABLE' });
    mkdirSync(state.path(`${uid(2)}.json/occupied`), { recursive: true });
    await expect(journal.write(numbered(2, uid(2)))).rejects.toMatchObject({ reason: 'JOURNAL_UNAVAILABLE' });
    rmSync(state.path(`${uid(2)}.json`), { recursive: true });
    await journal.check();
    expect(JSON.parse(readFileSync(state.path(`${uid(2)}.json`), 'utf8'))).toMatchObject({ podUid: uid(2) });
    expect((await journal.check()).ready).toBe(false);
    rmSync(state.path(`${uid(1)}.json`), { recursive: true });
    expect(await journal.check()).toEqual({ ready: true });
  });

  test('readinessNow checks a writable state folder again, at most once in ten seconds', async () => {
    const clock = new FakeClock();
    const journal = await state.open({ clock });
    writeFileSync(join(state.folder, 'marker'), '');
    renameSync(state.folder, `${state.folder}-away`);
    writeFileSync(state.folder, '');
    clock.pass(RECHECK_MS - 1);
    expect(await journal.readinessNow()).toEqual({ ready: true });
    clock.pass(1);
    expect(await journal.readinessNow()).toMatchObject({
      ready: false,
      error: { code: 9, reason: 'JOURNAL_UNAVAILABLE', context: { errno: 'ENOTDIR' } },
    });
    rmSync(state.folder);
    renameSync(`${state.folder}-away`, state.folder);
    expect(clock.pass(RECHECK_MS)).toBe(1);
    await expect.poll(() => journal.readinessNow(), LONG_WAIT).toEqual({ ready: true });
    expect(readdirSync(state.folder)).toEqual(['marker']);
  });

  test('readinessNow checks the state folder again after ten seconds although the system time was set back', async () => {
    const clock = new FakeClock();
    const journal = await state.open({ clock });
    clock.setSystemTime(-3_600_000);
    clock.pass(RECHECK_MS);
    rmSync(state.folder, { recursive: true });
    writeFileSync(state.folder, '');
    expect((await journal.readinessNow()).ready).toBe(false);
  });

  test('a state folder that hangs is not ready, is checked once for all callers, and does not block them', async () => {
    const clock = new FakeClock();
    const journal = await state.open({ clock });
    clock.pass(RECHECK_MS);
    let answerCheck = (): void => undefined;
    const check = vi
      .spyOn(journal, 'check')
      .mockReturnValue(new Promise((resolve) => (answerCheck = () => resolve({ ready: true }))));
    const asked = [journal.readinessNow(), journal.readinessNow()];
    clock.pass(ANSWER_MS);
    for (const readiness of await Promise.all(asked)) {
      expect(readiness).toMatchObject({ ready: false, error: { reason: 'JOURNAL_UNAVAILABLE' } });
    }
    const later = journal.readinessNow();
    expect(check).toHaveBeenCalledTimes(1);
    answerCheck();
    expect(await later).toEqual({ ready: true });
    expect(clock.next).toBeUndefined();
  });

  test('a state folder that hangs is checked once, regardless of the number of slow writes', async () => {
    const clock = new FakeClock();
    const journal = await state.open({ clock });
    const { promise, resolve } = Promise.withResolvers<{ ready: true }>();
    const check = vi.spyOn(journal, 'check').mockReturnValue(promise);
    // A record that cannot be replaced has the effect of a slow write: the journal becomes unavailable.
    mkdirSync(state.path(`${uid(1)}.json/occupied`), { recursive: true });
    for (let writes = 0; writes < 3; writes += 1) {
      await expect(journal.write(numbered(1, uid(1)))).rejects.toMatchObject({ reason: 'JOURNAL_UNAVAILABLE' });
      expect(clock.pass(RECHECK_MS)).toBe(1);
    }
    expect(check).toHaveBeenCalledTimes(1);
    resolve({ ready: true });
    await promise;
    await expect(journal.write(numbered(1, uid(1)))).rejects.toMatchObject({ reason: 'JOURNAL_UNAVAILABLE' });
    clock.pass(RECHECK_MS);
    expect(check).toHaveBeenCalledTimes(2);
  });

  test('stops the checks of the state folder when the journal is closed', async () => {
    writeFileSync(state.folder, '');
    const clock = new FakeClock();
    const journal = await state.open({ clock });
    await journal.close();
    expect(clock.next).toBeUndefined();
  });
});

describe('kills while the journal is written', () => {
  // Processes that write the journal are killed: at random, and at each crash point.
  const root = join(dirname(fileURLToPath(import.meta.url)), '../../..');
  let programs: string;
  let base: string;
  let folder: string;
  const program = (crashing: boolean): string => join(programs, crashing ? 'crashing.mjs' : 'plain.mjs');

  beforeAll(async () => {
    programs = mkdtempSync(join(tmpdir(), 'journal-writer-'));
    chmodSync(programs, 0o755);
    for (const crashing of [true, false]) {
      await build({
        absWorkingDir: root,
        entryPoints: ['test/support/journal/writer.ts'],
        outfile: program(crashing),
        bundle: true,
        platform: 'node',
        format: 'esm',
        target: 'node24',
        define: { __CRASH_POINTS__: String(crashing) },
        // The bundle has CommonJS packages, which require node's own modules.
        banner: { js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);" },
        logLevel: 'error',
      });
    }
  });

  afterAll(() => rmSync(programs, { recursive: true }));

  beforeEach(() => {
    base = mkdtempSync(join(tmpdir(), 'journal-kill-'));
    folder = join(base, 'state');
  });

  afterEach(() => rmSync(base, { recursive: true }));

  interface Writer {
    readonly child: ChildProcess;
    readonly lines: string[];
    readonly ended: Promise<{ code: number | null; signal: string | null }>;
  }

  function start(crashing: boolean, args: (string | number)[], options: { env?: object } = {}): Writer {
    const child = spawn(process.execPath, [program(crashing), folder, ...args.map(String)], {
      stdio: ['ignore', 'pipe', 'inherit'],
      env: { ...process.env, ...options.env },
    });
    const lines: string[] = [];
    const reader = createInterface({ input: child.stdout });
    reader.on('line', (line) => {
      lines.push(line);
      child.emit('line', line);
    });
    const ended = Promise.all([once(child, 'close'), once(reader, 'close')]).then(([[code, signal]]) => ({
      code: code as number | null,
      signal: signal as string | null,
    }));
    return { child, lines, ended };
  }

  const load = async (): Promise<LoadedRecord[]> => {
    const journal = await Journal.open(folder, { bootId: 'boot' });
    try {
      return await journal.load();
    } finally {
      await journal.close();
    }
  };
  const last = (lines: readonly string[], word: string): number =>
    Number(
      lines
        .filter((line) => line.startsWith(`${word} `))
        .at(-1)
        ?.split(' ')[1] ?? -1,
    );

  describe('a killed process', () => {
    test('KEP-1287: a process killed at any moment leaves its last journal record or the previous one, both complete', {
      timeout: 900_000,
    }, async () => {
      const outcomes = { newer: 0, older: 0, betweenWrites: 0 };
      let first = 0;
      for (let round = 0; round < 50; round += 1) {
        const writer = start(false, [first]);
        const wanted = first + Math.floor(Math.random() * 6);
        // Kills the process at a random time after a random record.
        while (last(writer.lines, 'begin') < wanted) await once(writer.child, 'line');
        const until = performance.now() + Math.random() * 8;
        while (performance.now() < until) await new Promise(setImmediate);
        writer.child.kill('SIGKILL');
        expect((await writer.ended).signal).toBe('SIGKILL');

        const done = last(writer.lines, 'done');
        const begun = last(writer.lines, 'begin');
        const records = await load();
        const number = records[0] === undefined ? -1 : numberIn(records[0]);
        expect(records).toEqual(number === -1 ? [] : [{ ...numbered(number), earlierBoot: false }]);
        const before = done === -1 ? first - 1 : done;
        expect([before, begun], `killed in round ${round} after ${writer.lines.slice(-2).join(', ')}`).toContain(
          number,
        );
        outcomes[begun === done ? 'betweenWrites' : number === begun ? 'newer' : 'older'] += 1;
        expect(readdirSync(folder)).toEqual(number === -1 ? [] : [`${podUid}.json`]);
        first = number + 1;
      }
      // Enough kills are during a write: otherwise the test proves nothing.
      expect(outcomes.older + outcomes.newer).toBeGreaterThan(10);
    });

    test.each([
      ['journal-write-before', [1]],
      ['journal-write-synced', [1]],
      ['journal-write-renamed', [2]],
      ['journal-write-after', [2]],
      ['journal-remove-before', [4]],
      ['journal-remove-unlinked', []],
      ['journal-remove-after', []],
    ])('a process killed at %s leaves the journal records %j', async (point, numbers) => {
      const isWrite = point.startsWith('journal-write');
      const passed = join(base, 'passed');
      const armed = join(base, 'armed');
      writeFileSync(armed, `${point}#${isWrite ? 2 : 1}`);
      const env = { CRI_RESIZE_SHIM_CRASH: armed, CRI_RESIZE_SHIM_CRASH_LOG: passed };
      const writer = start(true, [1, 4], { env });
      expect((await writer.ended).signal).toBe('SIGKILL');
      const names = readFileSync(passed, 'utf8').trim().split('\n');
      expect(names.at(-1)).toBe(point);
      expect(names.filter((name) => name === point)).toHaveLength(isWrite ? 2 : 1);
      expect(await load()).toEqual(numbers.map((number) => ({ ...numbered(number), earlierBoot: false })));
      expect(readdirSync(folder)).toHaveLength(numbers.length);
      // The next process can write and remove records.
      expect((await start(true, [9, 1]).ended).code).toBe(0);
      expect(await load()).toEqual([]);
    });

    test('KEP-1287: a journal writer passes all crash points, before and after each write and removal, in order', async () => {
      const passed = join(base, 'passed');
      const writer = start(true, [1, 2], { env: { CRI_RESIZE_SHIM_CRASH_LOG: passed } });
      expect(await writer.ended).toEqual({ code: 0, signal: null });
      const write = ['before', 'synced', 'renamed', 'after'].map((part) => `journal-write-${part}`);
      const remove = ['before', 'unlinked', 'after'].map((part) => `journal-remove-${part}`);
      expect(readFileSync(passed, 'utf8').trim().split('\n')).toEqual([...write, ...write, ...remove]);
    });

    test('a build without crash points ignores the environment that arms them', async () => {
      const passed = join(base, 'passed');
      const armed = join(base, 'armed');
      writeFileSync(armed, 'journal-write-before#1');
      const env = { CRI_RESIZE_SHIM_CRASH: armed, CRI_RESIZE_SHIM_CRASH_LOG: passed };
      const writer = start(false, [1, 1], { env });
      expect(await writer.ended).toEqual({ code: 0, signal: null });
      expect(writer.lines).toEqual(['begin 1', 'done 1', 'removed']);
      expect(readdirSync(base).sort()).toEqual(['armed', 'state']);
    });
  });

  describe('a state folder with wrong rights', () => {
    const NOBODY = 65534;
    const isRoot = process.getuid?.() === 0;
    const asNobody = isRoot ? { env: { WRITER_UID: String(NOBODY) } } : {};
    const failure = (lines: readonly string[]): unknown =>
      JSON.parse(lines.find((line) => line.startsWith('failed '))?.slice('failed '.length) ?? '{}');

    test('a state folder that is not accessible causes an error with the file and the errno', async () => {
      mkdirSync(folder, { mode: 0o700 });
      chmodSync(base, 0o000);
      const writer = start(false, [1, 1], asNobody);
      await writer.ended;
      chmodSync(base, 0o700);
      expect(failure(writer.lines)).toMatchObject({
        code: 9,
        reason: 'JOURNAL_UNAVAILABLE',
        context: { pod: podUid, file: join(folder, `${podUid}.json`), errno: 'EACCES' },
      });
    });

    test('a state folder that another user owns is not written to, although its mode allows it', async () => {
      chmodSync(base, 0o777);
      mkdirSync(folder);
      chmodSync(folder, isRoot ? 0o755 : 0o555);
      if (isRoot) chownSync(folder, NOBODY, NOBODY);
      const writer = start(false, [1, 1]);
      await writer.ended;
      expect(failure(writer.lines)).toMatchObject(
        isRoot
          ? {
              message: expect.stringMatching(
                /the state folder is owned by user 65534: expected the shim's user/,
              ) as unknown,
            }
          : { context: { errno: 'EACCES' } },
      );
      expect(readdirSync(folder)).toEqual([]);
    });
  });
});
