// Search in a site that is opened from a folder: browsers refuse workers there, so a frame runs
// the worker's script. The plug-in `offline` leaves its own script out because of this file's name.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inner = frame.contentWindow;
      // What the script posts goes to the page, not to its own window.
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this._loaded = new Promise((resolve) => {
        const script = inner.document.createElement("script");
        script.src = new URL(url, location.href);
        script.onload = () => resolve(inner);
        inner.document.body.append(script);
      });
    }

    postMessage(data) {
      this._loaded.then((inner) => inner.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
