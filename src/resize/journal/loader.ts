import { readdir } from 'node:fs/promises';
import type { KeyedLock } from '../../core/concurrency/index.ts';
import { knownFile } from './file-names.ts';
import type { RecordReader } from './reader.ts';
import type { PodRecord } from './record.ts';
import type { VolumeRecord } from './volume-record.ts';
import type { Withheld, WithheldRecords } from './withheld.ts';

/** A record as it is loaded. */
export interface LoadedRecord extends PodRecord {
  /** Written before a reboot: only volumes and deferred requests are still valid. */
  readonly earlierBoot: boolean;
}

/** A record that is still valid, or why it is withheld. Neither when there is none. */
interface FoundRecord {
  readonly record?: LoadedRecord;
  readonly withheld?: Withheld | undefined;
}

export interface RecordLoaderParts {
  readonly folder: string;
  readonly reader: RecordReader;
  readonly withheld: WithheldRecords;
  /** Serializes the changes of a file, by its name. */
  readonly lock: KeyedLock;
}

/** Loads the records of the state folder, and removes what a crash or a reboot has left behind. */
export class RecordLoader {
  readonly #parts: RecordLoaderParts;

  constructor(parts: RecordLoaderParts) {
    this.#parts = parts;
  }

  /** Returns all records that can be read. Rejects when the folder cannot be read. */
  async all(bootId: string): Promise<LoadedRecord[]> {
    const { folder, reader } = this.#parts;
    const names = await readdir(folder);
    const loaded: LoadedRecord[] = [];
    for (const name of names.sort()) {
      const record = await this.#file(name, bootId);
      if (record !== undefined) loaded.push(record);
    }
    await reader.removeOldestBad();
    return loaded;
  }

  /**
   * Reads the withheld records again: the disk may be back, or the file replaced. Passes each record to `onRead` in the moment from which
   * it may be changed. Returns how many these were. Never rejects.
   */
  async withheld(bootId: string, onRead: (record: LoadedRecord) => void): Promise<number> {
    const { lock, withheld } = this.#parts;
    let count = 0;
    for (const name of withheld.names()) {
      await lock.run(name, async () => {
        const read = await this.#record(name, bootId);
        // Without a pause between these: a change would otherwise start from an empty record, and replace this one.
        withheld.set(name, read.withheld);
        if (read.record === undefined) return;
        count += 1;
        onRead(read.record);
      });
    }
    return count;
  }

  async #file(name: string, bootId: string): Promise<LoadedRecord | undefined> {
    const known = knownFile(name);
    if (known === undefined || known.kind === 'bad') return undefined;
    // Under the lock: a temporary file that is being written is not a leftover.
    return this.#parts.lock.run(known.record, async () => {
      if (known.kind === 'record') {
        const read = await this.#record(name, bootId);
        this.#parts.withheld.set(name, read.withheld);
        return read.record;
      }
      await this.#parts.reader.removeLeftover(name);
      return undefined;
    });
  }

  async #record(name: string, thisBoot: string): Promise<FoundRecord> {
    const { reader } = this.#parts;
    const read = await reader.read(name);
    if (read?.record === undefined) return { withheld: read?.withheld };
    const { bootId, podUid, sandboxId, transaction, holds, volumes, resizes } = read.record;
    const earlierBoot = bootId !== thisBoot;
    // The cgroups and mounts that the steps name do not exist after a reboot.
    if (earlierBoot && volumes.size === 0 && resizes === undefined) {
      await reader.removeLeftover(name);
      return {};
    }
    const record = {
      podUid,
      sandboxId,
      ...(transaction !== undefined && !earlierBoot && { transaction }),
      ...(holds !== undefined && !earlierBoot && { holds }),
      volumes: earlierBoot ? withoutMounts(volumes) : volumes,
      ...(resizes !== undefined && { resizes }),
      earlierBoot,
    };
    return { record };
  }
}

/** Returns the records without mounts: policies stay valid after a reboot, mounts do not. */
function withoutMounts(volumes: PodRecord['volumes']): PodRecord['volumes'] {
  const kept = ({ policy, source, annotated, mounted }: VolumeRecord): VolumeRecord => ({
    ...{ policy, source, annotated },
    ...(mounted !== undefined && { mounted }),
  });
  return new Map([...volumes].map(([name, record]) => [name, kept(record)]));
}
