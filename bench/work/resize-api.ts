import { readFileSync } from 'node:fs';
import protobuf from 'protobufjs';
import { repositoryFile } from '../built-file.ts';
import type { Call } from '../client/client.ts';
import { type Amounts, bytesOf, type FakePod } from '../fake/pods.ts';

/** Calls of the resize API, as a node agent makes them. */

const PACKAGE = 'criresize.v1alpha1';

function readTypes(): protobuf.Root {
  const text = readFileSync(repositoryFile('proto/criresize/v1alpha1/resize.proto'), 'utf8');
  const { root, imports = [] } = protobuf.parse(text, { keepCase: true });
  for (const name of imports) root.addJSON(protobuf.common.get(name)?.nested ?? {});
  return root;
}

const types = readTypes();

/** Requests these limits and requests of all containers of a pod, by their order. The pod limits follow. */
export function resizePodCall({ pod, containers }: FakePod, amounts: readonly Amounts[]): Call {
  const asked = containers.map(({ name }, index) => {
    const { memoryMi, milliCpu } = amounts[index] ?? { memoryMi: 0, milliCpu: 0 };
    const both = { cpu: `${milliCpu}m`, memory: String(bytesOf(memoryMi)) };
    return [name, { limits: both, requests: { cpu: both.cpu } }] as const;
  });
  const type = types.lookupType(`${PACKAGE}.ResizePodRequest`);
  const request = type.encode(type.fromObject({ pod: { uid: pod.uid }, containers: Object.fromEntries(asked) }));
  return { path: `/${PACKAGE}.ResizeService/ResizePod`, request: request.finish() };
}

/** Returns the state in a ResizePodResponse, for example `COMPLETED`. */
export function stateOf(response: Buffer): string {
  const type = types.lookupType(`${PACKAGE}.ResizePodResponse`);
  const { resize } = type.toObject(type.decode(response), { enums: String }) as { resize?: { state?: string } };
  return resize?.state ?? 'none';
}
