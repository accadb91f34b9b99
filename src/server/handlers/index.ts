/** The CRI calls that the shim handles or amends: one file each, and this table. All other calls are forwarded. */
import { type Backend, runtimePath } from '../../runtime/index.ts';
import type { AmendedCall, Interceptors } from './interceptors.ts';
import { containerStatus } from './container-status.ts';
import { amendedHandler } from './forward.ts';
import { forgetContainer, forgetPod, learnContainer, learnPod } from './learn.ts';
import { type PodSandboxStatusParts, podSandboxStatus } from './pod-sandbox-status.ts';
import { runtimeConfig } from './runtime-config.ts';
import { type Program, runtimeStatus } from './status.ts';
import { type UpdateContainerResourcesParts, updateContainerResources } from './update-container-resources.ts';
import { updatePodSandboxResources } from './update-pod-sandbox-resources.ts';
import type { RawUnaryHandler } from '../../grpc/index.ts';

/** What the interceptors need. */
export interface InterceptorParts extends UpdateContainerResourcesParts, PodSandboxStatusParts {}

/** Returns the table of interceptors, by path. */
export function createInterceptors(context: InterceptorParts, backend: Backend, program: Program): Interceptors {
  return {
    handlers: new Map([
      [runtimePath('UpdateContainerResources'), updateContainerResources(context, backend)],
      [runtimePath('UpdatePodSandboxResources'), updatePodSandboxResources(context, backend)],
      [runtimePath('RuntimeConfig'), runtimeConfig(backend)],
    ]),
    amendments: new Map<string, AmendedCall>([
      [runtimePath('ContainerStatus'), { amendment: containerStatus(context), logLevel: 'debug' }],
      [runtimePath('Status'), { amendment: runtimeStatus(context, program), logLevel: 'debug' }],
      [runtimePath('PodSandboxStatus'), { amendment: podSandboxStatus(context), logLevel: 'debug' }],
      [runtimePath('RunPodSandbox'), { amendment: learnPod(context), logLevel: 'info' }],
      [runtimePath('RemovePodSandbox'), { amendment: forgetPod(context), logLevel: 'info' }],
      [runtimePath('CreateContainer'), { amendment: learnContainer(context), logLevel: 'info' }],
      [runtimePath('RemoveContainer'), { amendment: forgetContainer(context), logLevel: 'info' }],
    ]),
  };
}

/** Returns the local server's handlers: handled calls, and amended calls, which reach it with compressed messages. */
export function localHandlers({ handlers, amendments }: Interceptors, backend: Backend): Map<string, RawUnaryHandler> {
  const amended = [...amendments].map(
    ([path, { amendment }]) => [path, amendedHandler(backend, amendment)] as const satisfies [string, RawUnaryHandler],
  );
  return new Map([...amended, ...handlers]);
}

export { interceptionOf, noInterceptors } from './interceptors.ts';
export type { Interceptors } from './interceptors.ts';
export { createLocalServer } from './local-server.ts';
export { callFields } from '../../grpc/index.ts';
