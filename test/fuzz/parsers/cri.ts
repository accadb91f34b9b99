import type { Messages, Partially } from '../../../src/runtime/messages.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import {
  describeCgroupDriver,
  describeContainer,
  describePod,
  describeRequestedPod,
} from '../../../src/runtime/description.ts';
import {
  withInfo,
  readContainerStatus,
  readContainerStatuses,
  withResources,
  withResourcesOfStatuses,
} from '../../../src/runtime/container-status.ts';
import { readRequest, readPodRef, readRequestedPod, readTerms } from '../../../src/server/api/requests.ts';
import { readRequested } from '../../../src/sandbox/queue/request.ts';
import { encode as encodeApi } from '../../../src/server/api/messages.ts';
import { mutateJson } from '../mutations/json.ts';
import { mutateMessage } from '../mutations/message.ts';
import type { Random } from '../random.ts';
import {
  containerInfo,
  podConfig,
  podInfo,
  resizeRequests,
  resources,
  runtimeConfiguration,
} from '../seeds/messages.ts';
import { type Parser, parserTarget } from './parser.ts';

/** Content that is no message: callers forward it unchanged and count it. A stack overflow is a RangeError too. */
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
      readContainerStatus(withResources(bytes, { cpu_period: 100_000, memory_limit_in_bytes: 1 }));
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
      readContainerStatuses(withInfo(withResourcesOfStatuses(bytes, places), 'key', '{}'), 3);
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
