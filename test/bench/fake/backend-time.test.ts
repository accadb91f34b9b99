import { describe, expect, test } from 'vitest';
import { BackendTime } from '../../../bench/fake/backend-time.ts';

describe('BackendTime', () => {
  test('measures from the first bytes of the request to the last bytes of the answer', () => {
    const time = new BackendTime();
    time.arrived(100);
    time.begin();
    time.answered();
    time.left(130);
    time.left(140);
    expect(time.total).toBe(40);
  });

  test('counts the time of concurrent calls once', () => {
    const time = new BackendTime();
    time.arrived(0);
    time.begin();
    time.arrived(10);
    time.begin();
    time.answered();
    time.left(20);
    time.answered();
    time.left(50);
    expect(time.total).toBe(50);
  });

  test('adds the times of sequential calls without the time between them', () => {
    const time = new BackendTime();
    for (const start of [0, 1000]) {
      time.arrived(start);
      time.begin();
      time.answered();
      time.left(start + 5);
    }
    expect(time.total).toBe(10);
  });

  test('does not count bytes outside of calls, such as SETTINGS and pings', () => {
    const time = new BackendTime();
    time.arrived(0);
    time.begin();
    time.answered();
    time.left(5);
    time.arrived(300);
    time.left(310);
    expect(time.total).toBe(5);
    time.arrived(400);
    time.begin();
    time.answered();
    time.left(401);
    expect(time.total).toBe(6);
  });

  test('does not count a call before its answer has been sent', () => {
    const time = new BackendTime();
    time.arrived(0);
    time.begin();
    expect(time.total).toBe(0);
    time.answered();
    time.left(7);
    expect(time.total).toBe(7);
  });
});
