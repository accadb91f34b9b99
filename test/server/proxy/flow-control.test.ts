import { expect, test, vi } from 'vitest';
import {
  RESPONSE,
  SETTINGS_ACK,
  data,
  dataOf,
  headers,
  openProxy,
  request,
  settings,
  windowUpdate,
} from '../../support/http2/wire.ts';

test('all window updates of one read check the waiting lanes only once', () => {
  const proxy = openProxy({ readAhead: 10_000 });
  proxy.client.send(headers(1, request('/pass/A'), true), windowUpdate(1, 100_000));
  proxy.backend.send(headers(1, RESPONSE));
  for (let sent = 0; sent < 65_535; sent += 13_107) proxy.backend.send(data(1, Buffer.alloc(13_107)));
  proxy.backend.send(data(1, Buffer.alloc(6000)));
  proxy.client.take();
  const pump = vi.spyOn(proxy.core.flowControl, 'pump');
  proxy.client.send(Buffer.concat(Array.from({ length: 500 }, () => windowUpdate(0, 10))));
  expect(pump).toHaveBeenCalledTimes(1);
  expect(dataOf(proxy.client.take(), 1)).toHaveLength(5000);
  proxy.client.send(settings([4, 100_000]), settings([4, 200_000]));
  proxy.backend.send(SETTINGS_ACK, SETTINGS_ACK);
  proxy.client.send(windowUpdate(0, 1000));
  expect(pump).toHaveBeenCalledTimes(3);
  expect(dataOf(proxy.client.take(), 1)).toHaveLength(1000);
});
