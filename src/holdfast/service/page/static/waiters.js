/** A lock as the service tells it, whose waiters are found by their owners: ten thousand may wait for one. */
export class Lock {
  constructor(told) {
    Object.assign(this, told);
  }

  get waiters() {
    return (this._list ??= [...this._queue.values()]);
  }

  set waiters(list) {
    this._list = list;
    this._queue = null;
  }

  join(waiter) {
    this._find();
    if (this._queue.has(waiter.owner)) return;
    this._queue.set(waiter.owner, waiter);
    this._list = null;
  }

  leave(owner) {
    if (this._list?.length === 0) return;
    this._find();
    if (this._queue.delete(owner)) this._list = null;
  }

  _find() {
    this._queue ??= new Map(this._list.map((one) => [one.owner, one]));
  }
}
