import { readFile, realpath } from 'node:fs/promises';
import { errnoOf } from '../../core/errors/index.ts';
import { FLAG, type Kubelet, endpointIn } from './kubelet.ts';
import { Refusal, flagsIn, withEndpoint, withFlag } from './setting.ts';
import { type Node, unitProperties } from '../host/index.ts';

/** The one file that sets the endpoint of kubelet. */
export interface Setting {
  /** The real path, symbolic links resolved. */
  readonly file: string;
  readonly text: string;
  /** Whether a change needs `systemctl daemon-reload`. */
  readonly isOfUnit: boolean;
  /** The endpoint in a text of this file; undefined if there is none. */
  readonly endpointOf: (text: string) => string | undefined;
  /** The text with another endpoint. Throws Refusal. */
  readonly edited: (text: string, endpoint: string | undefined) => string;
}

/** Finds the file. Throws Refusal if it has to be changed manually. @param wanted the new endpoint, for the error message */
export async function settingOf(node: Node, { source, endpoint }: Kubelet, wanted: string): Promise<Setting> {
  if (source.kind === 'flag') return flagSetting(node, endpoint, wanted);
  if (source.file === undefined)
    throw new Refusal(
      `${node.kubeletUnit} has neither --config nor ${FLAG}`,
      `start kubelet with --config and a KubeletConfiguration, or with ${FLAG}=${endpoint}, and try again`,
    );
  if (!source.file.startsWith('/'))
    throw new Refusal(`${node.kubeletUnit} has a relative path: --config=${source.file}`, 'use an absolute path');
  const file = await realpath(source.file);
  return {
    file,
    text: await readFile(file, 'utf8'),
    isOfUnit: false,
    endpointOf: (text) => endpointIn(text, file),
    edited: (text, other) => withEndpoint(text, other, file),
  };
}

async function flagSetting(node: Node, endpoint: string, wanted: string): Promise<Setting> {
  const files = await filesOf(node.kubeletUnit);
  const found = files.flatMap(({ file, text, isOfUnit }) =>
    flagsIn(text).map((flag) => ({ file, text, isOfUnit, flag })),
  );
  const remedy = `set ${FLAG}=${wanted} manually, and restart ${node.kubeletUnit}`;
  const [one, ...others] = found;
  const all = files.map(({ file }) => file).join(', ');
  if (one === undefined) throw new Refusal(`${FLAG} is in none of ${node.kubeletUnit}'s files: ${all}`, remedy);
  const places = found.map(({ file }) => file).join(', ');
  if (others.length > 0) throw new Refusal(`${FLAG} is in several places of ${node.kubeletUnit}: ${places}`, remedy);
  if (one.flag.endpoint !== endpoint)
    throw new Refusal(`${one.file} has ${FLAG}=${one.flag.endpoint}, but kubelet runs with ${endpoint}`, remedy);
  const { file, text, isOfUnit } = one;
  return {
    file,
    text,
    isOfUnit,
    endpointOf: (other) => flagsIn(other)[0]?.endpoint,
    edited: (other, to) => withFlag(other, to ?? endpoint, file),
  };
}

interface UnitFile {
  readonly file: string;
  readonly text: string;
  readonly isOfUnit: boolean;
}

/** Returns the unit file, its drop-ins and its environment files. */
async function filesOf(unit: string): Promise<readonly UnitFile[]> {
  const property = await unitProperties(unit, ['FragmentPath', 'DropInPaths', 'EnvironmentFiles']);
  const ofUnit = [...property('FragmentPath'), ...property('DropInPaths').flatMap((paths) => paths.split(' '))];
  // `/etc/default/kubelet (ignore_errors=yes)`, one per line.
  const environment = property('EnvironmentFiles').map((entry) => entry.replace(/ \(ignore_errors=(yes|no)\)$/, ''));
  const all = [
    ...ofUnit.map((file) => ({ file, isOfUnit: true })),
    ...environment.map((file) => ({ file, isOfUnit: false })),
  ].filter(({ file }) => file !== '');
  const read = await Promise.all(all.map(async (at) => ({ ...at, text: await textOf(at.file) })));
  return read.flatMap(({ file, text, isOfUnit }) => (text === undefined ? [] : [{ file, text, isOfUnit }]));
}

async function textOf(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}
