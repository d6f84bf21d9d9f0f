package dev.edgedec.demo

import dev.edgedec.core.Drafter
import dev.edgedec.core.Message
import dev.edgedec.core.Request
import dev.edgedec.core.State
import java.security.SecureRandom

/**
 * What the app does, without views: takes what the user asks for, and keeps the [screen].
 *
 * Everything happens on one thread; [tick] takes in what other threads have done meanwhile. It lives
 * longer than the activity, which Android makes anew when the phone is turned.
 */
class Presenter(
    private val shelf: Shelf,
    private val store: Store,
    private val clock: () -> Long = System::nanoTime,
    private val newSeed: () -> Long = { SecureRandom().nextInt(Int.MAX_VALUE).toLong() },
) {
    var screen = Screen(settings = store.load())
        private set
    private val heat = Heat()
    private var host: Host? = null
    private var run: Run? = null
    private var import: Import? = null
    /** What was asked for before the bundle was open. */
    private var wanted: ((Host) -> Unit)? = null
    /** Whether to open the bundle again as soon as nothing is decoded. */
    private var reopen = false
    /** Threads that the decoder took by itself on a cool phone. */
    private var took: Int? = null

    /** The app is seen, and its decoder is there. */
    fun attach(host: Host) {
        this.host = host
        val bundles = shelf.bundles()
        val before = bundles.firstOrNull { it.folder.name == store.bundle }
        screen = screen.copy(bundles = bundles, chosen = screen.chosen ?: before ?: bundles.firstOrNull())
        if (import == null) shelf.demo()?.let { import(it) }
        if (screen.chosen != null) open()
    }

    /** The app is not seen any more: the decoder ends, the text stays. */
    fun detach() {
        run?.let { screen = it.abandon(screen, Ending.BACKGROUND) }
        run = null
        wanted = null
        host = null
    }

    /** Takes in what has happened, and returns the screen. */
    fun tick(): Screen {
        followImport()
        host?.let { follow(it) }
        return screen
    }

    fun decode(prompt: String) = whenOpen { host ->
        val chat = screen.chat
        val before = if (chat) screen.turns.filter { it.chat } else emptyList()
        val turns = before + Turn(prompt, chat = chat)
        screen = screen.copy(turns = turns, race = null, error = null, shown = Shown.DECODING)
        run = TextRun(host, request(prompt, before), clock)
    }

    /** Decodes the prompt plainly and with a draft; both draw with one seed. */
    fun race(prompt: String) = whenOpen { host ->
        val before = if (screen.chat) screen.turns.filter { it.chat } else emptyList()
        val asked = request(prompt, before)
        val sampling = asked.sampling.copy(seed = asked.sampling.seed ?: newSeed())
        val drafter = if (asked.drafter == Drafter.NONE) Drafter.AUTO else asked.drafter
        screen = screen.copy(race = Race(asked.maxNewTokens), error = null, shown = Shown.RACING)
        run = RaceRun(host, asked.copy(sampling = sampling, drafter = drafter), clock)
    }

    fun stop() {
        wanted = null
        if (run == null) return
        screen = screen.copy(shown = Shown.STOPPING)
        host?.cancel()
    }

    fun clear() {
        if (run == null) screen = screen.copy(turns = emptyList(), race = null, error = null)
    }

    /** Starts to copy a bundle, which is opened afterwards. */
    fun import(incoming: Incoming) {
        if (import != null) return
        import = Import(shelf, incoming).also { it.start() }
        screen = screen.copy(copying = Copying(incoming.name), error = null)
    }

    fun cancelImport() {
        import?.cancel()
    }

    /** Says in one sentence what the user cannot have. */
    fun refuse(message: String) {
        screen = screen.copy(error = message)
    }

    fun choose(bundle: Installed) {
        if (bundle == screen.chosen) return
        run?.let { screen = it.abandon(screen, Ending.CANCELLED) }
        run = null
        took = null
        screen = screen.copy(chosen = bundle)
        store.bundle = bundle.folder.name
        open()
    }

    /** Removes the chosen bundle, unless it came with the app. */
    fun remove() {
        val bundle = screen.chosen ?: return
        if (bundle.demo || run != null) return
        host?.release()
        shelf.remove(bundle)
        val left = shelf.bundles()
        screen = screen.copy(bundles = left, chosen = null, about = null)
        left.firstOrNull()?.let { choose(it) }
    }

    /** Keeps the settings; another number of threads opens the bundle anew. */
    fun change(settings: Settings) {
        if (settings.threads != screen.settings.threads) reopen = true
        store.save(settings)
        screen = screen.copy(settings = settings)
    }

    fun showSettings(open: Boolean) {
        screen = screen.copy(settingsOpen = open)
    }

    fun chat(on: Boolean) {
        screen = screen.copy(chat = on)
    }

    /** Puts back what an earlier process of the app has shown. */
    fun restore(turns: List<Turn>, chat: Boolean) {
        screen = screen.copy(turns = turns, chat = chat)
    }

    private fun request(prompt: String, before: List<Turn>): Request {
        if (!screen.chat) return screen.settings.request(prompt)
        val answered = before.filter { it.answer.passage.text.isNotEmpty() }
        val said = answered.flatMap { listOf(Message("user", it.prompt), Message("assistant", it.answer.passage.text)) }
        return screen.settings.request(prompt, said + Message("user", prompt))
    }

    private fun whenOpen(start: (Host) -> Unit) {
        val host = host ?: return
        if (!screen.idle) return
        if (host.state is State.Ready) return start(host)
        wanted = start
        open()
    }

    private fun open() {
        val bundle = screen.chosen ?: return
        val host = host ?: return
        reopen = false
        screen = screen.copy(shown = Shown.OPENING, error = null)
        host.open(bundle.folder, heat.threads(screen.settings.threads, took))
    }

    private fun followImport() {
        val import = import ?: return
        val outcome = import.outcome
        if (outcome == null) {
            screen = screen.copy(copying = import.copying)
            return
        }
        this.import = null
        screen = screen.copy(copying = null)
        when (outcome) {
            is Outcome.Failed -> refuse(outcome.message)
            Outcome.Cancelled -> Unit
            is Outcome.Copied -> {
                screen = screen.copy(bundles = shelf.bundles())
                if (run == null) choose(outcome.bundle)
            }
        }
    }

    private fun follow(host: Host) {
        val state = host.state
        val about = (state as? State.Ready)?.about ?: (state as? State.Decoding)?.about
        if (about != null) {
            if (!heat.hot && screen.settings.threads == null) took = about.threads
            screen = screen.copy(about = about, chat = screen.chat && about.chat)
        }
        followRun(state)
        if (heat.update(host.thermal)) reopen = true
        screen = screen.copy(memoryMb = host.memoryMb, thermal = host.thermal, hot = heat.hot)
        if (run == null) settle(host, state)
    }

    private fun followRun(state: State) {
        val run = run ?: return
        screen = when (state) {
            is State.Closed -> run.abandon(screen, Ending.MEMORY)
            is State.Failed -> run.abandon(screen, Ending.FAILED)
            else -> run.advance(screen)
        }
        if (run.ended || state is State.Closed || state is State.Failed) this.run = null
    }

    /** Nothing is decoded: says so, and starts what has waited for it. */
    private fun settle(host: Host, state: State) {
        val start = wanted
        when (state) {
            is State.Opening -> screen = screen.copy(shown = Shown.OPENING)
            is State.Decoding -> screen = screen.copy(shown = Shown.STOPPING)
            is State.Closed -> screen = screen.copy(shown = closed())
            is State.Failed -> {
                wanted = null
                screen = screen.copy(shown = Shown.FAILED, error = state.message)
            }
            is State.Ready -> {
                screen = screen.copy(shown = Shown.READY)
                if (reopen) return open()
                wanted = null
                start?.invoke(host)
            }
        }
    }

    private fun closed(): Shown = when {
        screen.chosen != null -> Shown.RELEASED
        import != null -> Shown.STARTING
        else -> Shown.NO_BUNDLE
    }
}
