package dev.edgedec.core

import java.io.File

/** One turn of a conversation. */
data class Message(val role: String, val content: String)

/** What drafts. */
enum class Drafter { NONE, LOOKUP, MODEL, AUTO }

/**
 * A text to decode.
 *
 * @property prompt continued as it is; ignored if there are [messages]
 * @property messages a conversation, for bundles with chat pieces
 * @property draftLength drafted tokens of each round; null decides by measured costs
 */
data class Request(
    val prompt: String = "",
    val messages: List<Message>? = null,
    val sampling: Sampling = Sampling(),
    val drafter: Drafter = Drafter.AUTO,
    val draftLength: Int? = null,
    val maxNewTokens: Int = 128,
    val stopStrings: List<String> = emptyList(),
    val ignoreEos: Boolean = false,
)

/** A token of the text: the characters that it completes, and whether it was drafted. */
data class Emission(val token: Int, val text: String, val drafted: Boolean)

/**
 * What a text cost.
 *
 * @property reason why it ended: `eos`, `stop`, `length`, `cancelled`
 * @property ttftS seconds to the first token
 * @property tpotS seconds of each further token; null if there is none
 */
data class Figures(
    val reason: String,
    val promptTokens: Int,
    val reusedTokens: Int,
    val newTokens: Int,
    val rounds: Int,
    val drafted: Int,
    val accepted: Int,
    val ttftS: Double,
    val tpotS: Double?,
    val seed: Long,
) {
    val tokensPerSecond: Double? get() = tpotS?.let { 1 / it }
    /** Share of the drafted tokens that were kept; null if nothing was drafted. */
    val acceptanceRate: Double? get() = if (drafted == 0) null else accepted.toDouble() / drafted
    /** Tokens of the text per target pass. */
    val blockEfficiency: Double get() = if (rounds == 0) 0.0 else newTokens.toDouble() / rounds
}

/** What the decoder is doing. */
sealed class State {
    object Closed : State()
    data class Opening(val folder: File) : State()
    data class Ready(val about: About) : State()
    data class Decoding(val about: About) : State()
    data class Failed(val message: String) : State()
}

/**
 * Facts about an opened bundle.
 *
 * @property chat whether it has chat pieces
 * @property openS seconds that opening took
 * @property exact whether drafts cannot change a text on this machine: they give plain decoding's, token for token
 */
data class About(
    val folder: File,
    val target: String,
    val draft: String?,
    val chat: Boolean,
    val maxContext: Int,
    val threads: Int,
    val openS: Double,
    val exact: Boolean = false,
)

/** Called on the decoder's thread. */
interface Listener {
    /** The tokens of a round. */
    fun onTokens(tokens: List<Emission>)

    /** The end of a cancelled text that was held back because a stop string might have begun; of no further token. */
    fun onRest(text: String) = Unit

    /** The text has ended, also when it was cancelled. */
    fun onEnd(figures: Figures)

    /** The text cannot go on; the decoder is still usable unless its state is [State.Failed]. */
    fun onError(message: String)
}
