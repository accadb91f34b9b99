/** The table of the CRI calls that the shim handles or amends. All other calls are forwarded. */
import { type Backend, SHIM_STATUS_PATH, runtimePath } from '../../runtime/index.ts';
import type { AmendedCall, Interceptors, LocalHandlers } from './interceptors.ts';
import { amendedHandler } from './forward.ts';
import { containerEvents, containerStatus } from './container-status.ts';
import {
  forgetContainer,
  forgetPod,
  learnContainer,
  learnPod,
  learnRestoredPod,
  startContainer,
  startingContainer,
} from './create-and-remove.ts';
import { type PodSandboxStatusParts, podSandboxStatus } from './pod-sandbox-status.ts';
import { type UsageParts, listContainerStats, podSandboxStats, podSandboxStatsAnswered } from './stats.ts';
import { type Program, runtimeConfig, runtimeStatus, shimStatus } from './runtime.ts';
import {
  type UpdateContainerResourcesParts,
  updateContainerResources,
  updatePodSandboxResources,
} from './update-resources.ts';
import type { RawUnaryHandler } from '../unary/call.ts';

/** What the interceptors need. */
export interface InterceptorParts extends UpdateContainerResourcesParts, PodSandboxStatusParts, UsageParts {}

/** Returns the table of interceptors, by path. */
export function createInterceptors(context: InterceptorParts, backend: Backend, program: Program): Interceptors {
  return {
    handlers: new Map([
      [runtimePath('UpdateContainerResources'), updateContainerResources(context, backend)],
      [runtimePath('UpdatePodSandboxResources'), updatePodSandboxResources(context, backend)],
      [runtimePath('RuntimeConfig'), runtimeConfig(backend)],
      [SHIM_STATUS_PATH, shimStatus(program)],
    ]),
    amendments: new Map<string, AmendedCall>([
      [runtimePath('ContainerStatus'), { amendment: containerStatus(context), logLevel: 'debug' }],
      [runtimePath('Status'), { amendment: runtimeStatus(context, program), logLevel: 'debug' }],
      [runtimePath('PodSandboxStatus'), { amendment: podSandboxStatus(context), logLevel: 'debug' }],
      [runtimePath('PodSandboxStats'), { amendment: podSandboxStatsAnswered(context), logLevel: 'debug' }],
      [runtimePath('RunPodSandbox'), { amendment: learnPod(context), logLevel: 'info' }],
      [runtimePath('RestorePod'), { amendment: learnRestoredPod(context), logLevel: 'info' }],
      [runtimePath('RemovePodSandbox'), { amendment: forgetPod(context), logLevel: 'info' }],
      [runtimePath('CreateContainer'), { amendment: learnContainer(context), logLevel: 'info' }],
      [runtimePath('StartContainer'), { amendment: startContainer(context), logLevel: 'info' }],
      [runtimePath('RemoveContainer'), { amendment: forgetContainer(context), logLevel: 'info' }],
    ]),
    streams: new Map([[runtimePath('GetContainerEvents'), containerEvents(context)]]),
    delays: new Map([
      [runtimePath('StartContainer'), startingContainer(context)],
      [runtimePath('PodSandboxStats'), podSandboxStats(context)],
      [runtimePath('ListContainerStats'), listContainerStats(context)],
      [runtimePath('StreamContainerStats'), listContainerStats(context)],
    ]),
  };
}

/** Returns the local server's handlers: handled calls, and amended calls, which reach it with compressed messages. */
export function localHandlers({ handlers, amendments }: Interceptors, backend: Backend): LocalHandlers {
  const amended = [...amendments].map(
    ([path, { amendment }]) => [path, amendedHandler(backend, amendment)] as const satisfies [string, RawUnaryHandler],
  );
  return new Map([...amended, ...handlers]);
}
