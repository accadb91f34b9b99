import { readdir } from 'node:fs/promises';
import type { KeyedLock } from '../../core/concurrency/index.ts';
import { knownFile } from './file-names.ts';
import type { RecordReader } from './reader.ts';
import type { PodRecord } from './record.ts';
import type { WithheldRecords } from './withheld.ts';

/** A record as it is loaded. */
export interface LoadedRecord extends PodRecord {
  /** Written before a reboot: only volumes and deferred requests are still valid. */
  readonly earlierBoot: boolean;
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

  /** Returns those of the withheld records that can be read now: the disk may be back, or the file replaced. Never rejects. */
  async withheld(bootId: string): Promise<LoadedRecord[]> {
    const { lock, withheld } = this.#parts;
    const loaded: LoadedRecord[] = [];
    for (const name of withheld.names()) {
      const record = await lock.run(name, () => this.#record(name, bootId));
      if (record !== undefined) loaded.push(record);
    }
    return loaded;
  }

  async #file(name: string, bootId: string): Promise<LoadedRecord | undefined> {
    const known = knownFile(name);
    if (known === undefined || known.kind === 'bad') return undefined;
    // Under the lock: a temporary file that is being written is not a leftover.
    return this.#parts.lock.run(known.record, async () => {
      if (known.kind === 'record') return this.#record(name, bootId);
      await this.#parts.reader.removeLeftover(name);
      return undefined;
    });
  }

  async #record(name: string, thisBoot: string): Promise<LoadedRecord | undefined> {
    const { reader, withheld } = this.#parts;
    const read = await reader.read(name);
    withheld.set(name, read?.withheld);
    if (read?.record === undefined) return undefined;
    const { bootId, podUid, sandboxId, transaction, holds, volumes, resizes } = read.record;
    const earlierBoot = bootId !== thisBoot;
    // The cgroups and mounts that the steps name do not exist after a reboot.
    if (earlierBoot && volumes.size === 0 && resizes === undefined) {
      await reader.removeLeftover(name);
      return undefined;
    }
    return {
      podUid,
      sandboxId,
      ...(transaction !== undefined && !earlierBoot && { transaction }),
      ...(holds !== undefined && !earlierBoot && { holds }),
      volumes: earlierBoot ? withoutMounts(volumes) : volumes,
      ...(resizes !== undefined && { resizes }),
      earlierBoot,
    };
  }
}

/** Returns the records without mounts: policies stay valid after a reboot, mounts do not. */
function withoutMounts(volumes: PodRecord['volumes']): PodRecord['volumes'] {
  return new Map([...volumes].map(([name, { policy, source, annotated }]) => [name, { policy, source, annotated }]));
}
