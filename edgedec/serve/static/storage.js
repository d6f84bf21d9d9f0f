// The browser's storage. It may be full or switched off: then nothing is kept, and nothing fails.

function safely(action, otherwise) {
  try {
    return action();
  } catch {
    return otherwise;
  }
}

function area(name) {
  return {
    keys: () => safely(() => Object.keys(window[name]), []),
    get: (key) => safely(() => window[name].getItem(key), null),
    // Returns whether there was room.
    put: (key, value) => safely(() => (window[name].setItem(key, value), true), false),
    drop: (key) => safely(() => window[name].removeItem(key)),
  };
}

export const browser = area("localStorage");
export const tab = area("sessionStorage");

// Returns what was kept under a key, as `shape` makes it of the parsed JSON; null if that fails.
export function parsed(key, shape) {
  return safely(() => shape(JSON.parse(browser.get(key))), null);
}
