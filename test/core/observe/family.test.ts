import { expect, test } from 'vitest';
import { Counter } from '../../../src/core/observe/family.ts';

test('a family counts surplus and too long labels together as "other"', () => {
  const counter = new Counter({ type: 'counter', name: 'a_total', labels: ['method', 'code'], help: 'Counts calls.' });
  for (let index = 0; index < 2000; index += 1) counter.add([`/m/${index}`, `${index}`]);
  counter.add(['x'.repeat(129), '0']);
  const { counts } = counter;
  expect(counts.length).toBeLessThan(520);
  expect(counts.reduce((sum, { value }) => sum + value, 0)).toBe(2001);
  expect(counts.find(({ labels }) => labels.join() === 'other,other')?.value).toBeGreaterThan(1000);
  expect(counts.every(({ labels: [method = ''] }) => method.length <= 128)).toBe(true);
});
