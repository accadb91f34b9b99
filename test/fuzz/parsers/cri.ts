import { existsSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ShimError } from '../../../src/core/errors.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import {
  infoEntry,
  readContainerStatus,
  readContainerStatuses,
  withResources,
  withResourcesOfStatuses,
} from '../../../src/runtime/container-status.ts';
import {
  describeCgroupDriver,
  describeContainer,
  describePod,
  describeRequestedPod,
} from '../../../src/runtime/description.ts';
import type { Messages, Partially } from '../../../src/runtime/messages.ts';
import { decodeRecord, encodeRecord } from '../../../src/sandbox/journal/record.ts';
import { Journal } from '../../../src/sandbox/journal/store.ts';
import { readRequested } from '../../../src/sandbox/queue/request.ts';
import { encode as encodeApi } from '../../../src/server/api/messages.ts';
import { readPodRef, readRequest, readRequestedPod, readTerms } from '../../../src/server/api/requests.ts';
import { numbered, podUid } from '../../support/journal/numbered.ts';
import { memoryFolder } from '../memory-folder.ts';
import { mutateMessage } from '../mutations/message.ts';
import { mutateBytes, mutateJson } from '../mutations/values.ts';
import type { Random } from '../random.ts';
import {
  containerInfo,
  podConfig,
  podInfo,
  resizeRequests,
  resources,
  runtimeConfiguration,
} from '../seeds/messages.ts';
import { recordForms } from '../seeds/records.ts';
import type { Target } from '../target.ts';
import type { Parser } from './parser.ts';
import { isPlainError, parserTarget } from './parser.ts';

/** Whether content is no message. Callers forward it unchanged and count it. A stack overflow is a RangeError too. */
const isNotAMessage = (error: unknown): boolean =>
  error instanceof RangeError && /^(?:not a protobuf message|not a [A-Z]|index out of range)/.test(error.message);

type Make<Name extends keyof Messages> = (random: Random) => Partially<Messages[Name]>;

/** A message whose fields are mutated on the wire, after its `info` was mutated as JSON. */
function parserOf<Name extends keyof Messages>(
  name: Name,
  make: Make<Name>,
  parse: (bytes: Buffer) => unknown,
): Parser {
  return {
    name,
    make: (random) => {
      const bytes = encode(name, make(random));
      return random.chance(3) ? bytes : mutateMessage(bytes, random);
    },
    parse: (content) => parse(content as Buffer),
    isDocumented: isNotAMessage,
  };
}

const status = { id: 'c1', state: 1, metadata: { name: 'web' }, resources: { linux: resources } };

const parsers: readonly Parser[] = [
  parserOf(
    'ContainerStatusResponse',
    (random) => ({ status, info: { info: mutateJson(containerInfo, random) } }),
    (bytes) => {
      describeContainer(decode('ContainerStatusResponse', bytes));
      readContainerStatus(bytes);
      readContainerStatus(
        withResources(bytes, readContainerStatus(bytes), { cpu_period: 100_000, memory_limit_in_bytes: 1 }),
      );
    },
  ),
  parserOf(
    'PodSandboxStatusResponse',
    (random) => ({
      status: { id: 'p1', state: 0 },
      info: { info: mutateJson(podInfo, random) },
      containers_statuses: [status, { ...status, id: 'c2' }],
    }),
    (bytes) => {
      describePod(decode('PodSandboxStatusResponse', bytes));
      const places = readContainerStatuses(bytes, 3).map(({ place }) => ({ place, resources: { cpu_shares: 2 } }));
      readContainerStatuses(Buffer.concat([withResourcesOfStatuses(bytes, places), infoEntry('key', '{}')]), 3);
    },
  ),
  parserOf(
    'ContainerEventResponse',
    () => ({ container_id: 'c1', containers_statuses: [status] }),
    (bytes) => readContainerStatuses(bytes, 5),
  ),
  parserOf(
    'StatusResponse',
    (random) => ({ info: { config: mutateJson(runtimeConfiguration, random) } }),
    (bytes) => describeCgroupDriver(decode('StatusResponse', bytes)),
  ),
  parserOf(
    'RunPodSandboxRequest',
    () => ({ config: podConfig }),
    (bytes) => describeRequestedPod('p1', decode('RunPodSandboxRequest', bytes)),
  ),
  parserOf(
    'UpdateContainerResourcesRequest',
    () => ({ container_id: 'c1', linux: resources, annotations: { a: 'b' } }),
    (bytes) => encode('UpdateContainerResourcesRequest', decode('UpdateContainerResourcesRequest', bytes)),
  ),
  {
    name: 'ResizePodRequest',
    make: (random) => mutateMessage(encodeApi('ResizePodRequest', random.pick(resizeRequests)), random),
    parse: (content) => {
      const request = readRequest('ResizePodRequest', content as Buffer);
      readTerms(request);
      readRequested(readRequestedPod(request));
      readPodRef(request.pod);
    },
  },
];

/** Messages of CRI and of the resize API. */
export const criTarget = () => parserTarget('messages', parsers);

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
    // decodeRecord: "Throws an Error that names the fault". A decoded record can be encoded again, up to the limit.
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
