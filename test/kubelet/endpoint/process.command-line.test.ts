import { expect, test } from 'vitest';
import { endpointFlagsOf, flagOf } from '../../../src/kubelet/endpoint/process.ts';

test('the last occurrence of a flag counts, in both forms', () => {
  expect(flagOf(['kubelet', '--a=1', '--a', '2', '--ab=3'], '--a')).toBe('2');
  expect(flagOf(['kubelet', '--a', '2', '--a=1'], '--a')).toBe('1');
  expect(flagOf(['kubelet', '--a=x=y'], '--a')).toBe('x=y');
  expect(flagOf(['kubelet', '--a=x\ny'], '--a')).toBe('x\ny');
});

test('a flag without a value, after --, or with one dash is not given', () => {
  expect(flagOf(['kubelet', '--a'], '--a')).toBeUndefined();
  expect(flagOf(['kubelet', '--', '--a=1'], '--a')).toBeUndefined();
  expect(flagOf(['kubelet', '-a=1'], '--a')).toBeUndefined();
  expect(flagOf([], '--a')).toBeUndefined();
});

test('underscores in the name of a flag are dashes, but not in its value', () => {
  expect(flagOf(['kubelet', '--config_dir=/a_b'], '--config-dir')).toBe('/a_b');
  expect(flagOf(['kubelet', '--config_dir', '/a_b'], '--config-dir')).toBe('/a_b');
});

test('an empty value counts as not given', () => {
  expect(endpointFlagsOf(['kubelet', '--container-runtime-endpoint=', '--config', '', '--config-dir=/d'])).toEqual({
    endpoint: undefined,
    config: undefined,
    configDir: '/d',
  });
});
